#!/usr/bin/env bash
# Blocked random walk: the position on a torus of 3 x 3 cells, two of them blocked (v1 §4.1, B.1).
#   bash examples/synthetic_tasks/blocked_random_walk.sh [--small|--full] [--seeds "1 2 3"] [--out DIR]
# --print: print the commands without running them. Options: README.md.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/recipe.sh"

task=blocked_random_walk

small_setting() {
    sizes=(--train 4000 --valid 200 --test 500)
    training+=(--lr 0.001)
}

full_setting() {
    sizes=(--train 10000 --valid 1000 --test 100000)
    training+=(--lr 0.0003 --clip-norm 1.0) # v1 Table 9
}

run_task "$@"
