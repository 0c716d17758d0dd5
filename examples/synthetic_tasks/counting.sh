#!/usr/bin/env bash
# Counting: write as many B's as there were A's (v3 §4.1). Small: up to 20, and a span of 8 steps, with which two layers
# of a Transformer do not reach back to the first A's.
#   bash examples/synthetic_tasks/counting.sh [--small|--full] [--seeds "1 2 3"] [--out DIR]
# --print: print the commands without running them. Options: README.md.
. "$(dirname -- "${BASH_SOURCE[0]}")/../environment.sh"
recipe counting "$@"
