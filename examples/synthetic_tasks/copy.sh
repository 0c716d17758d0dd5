#!/usr/bin/env bash
# Copy a sequence; test sequences are ten times as long (v1 §4.1, v3 §4.1). Small: 8 digits in training and tests, and a
# span of 3 steps, with which two layers of a Transformer do not reach back to the digit to copy.
#   bash examples/synthetic_tasks/copy.sh [--small|--full] [--seeds "1 2 3"] [--out DIR]
# --print: print the commands without running them. Options: README.md.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/recipe.sh"

task=copy graded=length

small_setting() {
    sizes=(--length 8 --train 20000 --valid 200 --test 500) span=3 updates=2000
}

full_setting() {
    sizes=(--length 40 --test-length 400 --train 100000 --valid 1000 --test 1000) span=1000
}

run_task "$@"
