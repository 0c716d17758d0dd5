#!/usr/bin/env bash
# Blocked random walk: the position on a torus of 3 x 3 cells, two of them blocked (v1 §4.1, B.1).
#   bash examples/synthetic_tasks/blocked_random_walk.sh [--small|--full] [--seeds "1 2 3"] [--out DIR] [--print]
. "$(dirname -- "${BASH_SOURCE[0]}")/../recipe.sh" blocked_random_walk "$@"
