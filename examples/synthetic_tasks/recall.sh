#!/usr/bin/env bash
# Multi-query associative recall: values of keys that occurred before (docs/state-tracking.md).
#   bash examples/synthetic_tasks/recall.sh [--small|--full] [--models "feedback lstm mamba"] [--print]
. "$(dirname -- "${BASH_SOURCE[0]}")/../recipe.sh" recall "$@"
