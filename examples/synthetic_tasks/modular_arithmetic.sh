#!/usr/bin/env bash
# Modular arithmetic with brackets: values of expressions (docs/state-tracking.md).
#   bash examples/synthetic_tasks/modular_arithmetic.sh [--small|--full] [--models "feedback lstm mamba"] [--print]
. "$(dirname -- "${BASH_SOURCE[0]}")/../recipe.sh" modular_arithmetic "$@"
