#!/usr/bin/env bash
# Easy maze navigation: four moves, no orientation (v3 §7.2); --small: 7 x 7 cells, 100 steps.
#   bash examples/reinforcement_learning/maze_easy.sh [--small|--full] [--seed N] [--out DIR] [--print]
. "$(dirname -- "${BASH_SOURCE[0]}")/../recipe.sh" maze_easy "$@"
