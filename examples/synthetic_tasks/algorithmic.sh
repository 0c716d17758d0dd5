#!/usr/bin/env bash
# Programs of assignments, increments, conditions and prints (v3 §4.1.1, §7.4); small: shorter ones of fewer values.
#   bash examples/synthetic_tasks/algorithmic.sh [--small|--full] [--seed N] [--out DIR]
# Options: ./README.md.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/recipe.sh"

task=algorithmic

small_setting() {
    sizes=(--variables 3 --statements 15 --highest 4 --train 40000 --valid 500 --test 1000) updates=4000 span=64
    streams=256 # labels are few: one in 17 symbols
}

full_setting() {
    sizes=(--variables 3 --train 10000 --valid 1000 --test 1000)
}

run_task "$@"
