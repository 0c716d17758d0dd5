#!/usr/bin/env bash
# Maze navigation: find objects of eight colours and remember where they are (v3 §4.2.2, §7.2); --small: 7 x 7 cells.
#   bash examples/reinforcement_learning/maze.sh [--small|--full] [--seed N] [--out DIR] [--print]
. "$(dirname -- "${BASH_SOURCE[0]}")/../recipe.sh" maze "$@"
