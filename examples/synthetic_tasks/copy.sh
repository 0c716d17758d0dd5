#!/usr/bin/env bash
# Copy a sequence; test sequences are ten times as long (v1 §4.1, v3 §4.1). Small: 8 digits, and a span of 3 steps.
#   bash examples/synthetic_tasks/copy.sh [--small|--full] [--seeds "1 2 3"] [--out DIR] [--print]
. "$(dirname -- "${BASH_SOURCE[0]}")/../recipe.sh" copy "$@"
