#!/usr/bin/env bash
# Algorithmic task: programs of assignments, increments, conditions and prints (v3 §4.1.2, §7.4). Small: shorter
# programs with fewer values.
#   bash examples/synthetic_tasks/algorithmic.sh [--small|--full] [--seeds "1 2 3"] [--out DIR] [--print]
. "$(dirname -- "${BASH_SOURCE[0]}")/../recipe.sh" algorithmic "$@"
