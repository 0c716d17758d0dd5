#!/usr/bin/env bash
# Algorithmic task: programs of assignments, increments, conditions and prints (v3 §4.1.2, §7.4). Small: shorter
# programs with fewer values.
#   bash examples/synthetic_tasks/algorithmic.sh [--small|--full] [--seeds "1 2 3"] [--out DIR]
# --print: print the commands without running them. Options: README.md.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/recipe.sh"

task=algorithmic graded=statements

small_setting() {
    sizes=(--variables 3 --statements 15 --highest 4 --train 40000 --valid 500 --test 1000) updates=4000 span=64
    streams=256 # only one in 17 symbols has a label
}

full_setting() {
    sizes=(--variables 3 --train 10000 --valid 1000 --test 1000)
}

run_task "$@"
