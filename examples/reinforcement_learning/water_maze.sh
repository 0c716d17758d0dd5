#!/usr/bin/env bash
# Water maze: find the goal again by the names of cells (v3 §7.3, v1 §4.4); --small: 7 x 7 cells, 100 steps.
#   bash examples/reinforcement_learning/water_maze.sh [--small|--full] [--seed N] [--out DIR] [--print]
. "$(dirname -- "${BASH_SOURCE[0]}")/../recipe.sh" water_maze "$@"
