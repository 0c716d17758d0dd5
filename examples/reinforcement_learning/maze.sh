#!/usr/bin/env bash
# Maze navigation: find objects of eight colours and remember where they are (v3 §4.2.2, §7.2); --small: 7 x 7 cells,
# 100 steps.
#   bash examples/reinforcement_learning/maze.sh [--small|--full] [--seed N] [--out DIR]
# --print: print the commands without running them. Options: README.md.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/recipe.sh"

environment=maze

run_agents "$@"
