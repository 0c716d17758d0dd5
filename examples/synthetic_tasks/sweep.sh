#!/usr/bin/env bash
# Runs a task with several seeds, attention spans and depths, and writes a table and figures of all runs:
#   bash examples/synthetic_tasks/sweep.sh random_walk --seeds "1 2 3" [--spans "8 100"] [--depths "1 2 4"] [--jobs 2]
# --jobs N: number of parallel runs. All other options go to the task's script: README.md.
# --print: print the commands without running them.
. "$(dirname -- "${BASH_SOURCE[0]}")/../environment.sh"
case ${1:-} in "" | -*) fail "the task is missing; give one, such as random_walk" ;; esac
recipe "$1" --sweep "${@:2}"
