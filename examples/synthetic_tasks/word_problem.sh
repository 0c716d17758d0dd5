#!/usr/bin/env bash
# Word problems: the product so far of elements of a finite group, beside the recurrent models of today (docs/state-tracking.md).
#   bash examples/synthetic_tasks/word_problem.sh [--small|--full] [--group A5] [--models "feedback lstm mamba"] [--print]
. "$(dirname -- "${BASH_SOURCE[0]}")/../recipe.sh" word_problem "$@"
