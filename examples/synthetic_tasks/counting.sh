#!/usr/bin/env bash
# Counting: write as many B's as there were A's (v3 §4.1). Small: up to 20, and a span of 8 steps.
#   bash examples/synthetic_tasks/counting.sh [--small|--full] [--seeds "1 2 3"] [--out DIR] [--print]
. "$(dirname -- "${BASH_SOURCE[0]}")/../recipe.sh" counting "$@"
