#!/usr/bin/env bash
# Random walk: the position on a grid of 8 x 8 cells after steps and turns (v3 §4.1.2, §7.1). Small: 4 x 4 cells.
#   bash examples/synthetic_tasks/random_walk.sh [--small|--full] [--seeds "1 2 3"] [--out DIR] [--print]
. "$(dirname -- "${BASH_SOURCE[0]}")/../recipe.sh" random_walk "$@"
