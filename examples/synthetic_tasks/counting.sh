#!/usr/bin/env bash
# Counting: write as many B's as there were A's (v3 §4.1). Small: up to 20, and a span of 8 steps, with which two layers
# of a Transformer do not reach back to the first A's.
#   bash examples/synthetic_tasks/counting.sh [--small|--full] [--seeds "1 2 3"] [--out DIR]
# --print: print the commands without running them. Options: README.md.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/recipe.sh"

task=counting graded=longest

small_setting() {
    sizes=(--longest 20 --train 20000 --valid 200 --test 500) updates=2000
}

full_setting() {
    sizes=(--longest 50 --train 100000 --valid 1000 --test 1000) span=128
}

run_task "$@"
