#!/usr/bin/env bash
# Reverse a sequence; tests are ten times as long (v1 §4.1, v3 §4.1); small: 8 digits, also in the
# tests, at a span of 4: two layers of a Transformer do not see back to all of them.
#   bash examples/synthetic_tasks/reverse.sh [--small|--full] [--seed N] [--out DIR]
# Options: ./README.md.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/recipe.sh"

task=reverse

small_setting() {
    sizes=(--length 8 --train 20000 --valid 200 --test 500) span=4 updates=1000
}

full_setting() {
    sizes=(--length 40 --test-length 400 --train 100000 --valid 1000 --test 1000) span=1000
}

run_task "$@"
