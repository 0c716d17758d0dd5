#!/usr/bin/env bash
# Corridor: remember a colour from the start to the end (v3 §4.1.1, Figure 3); compares success by memory size.
#   bash examples/reinforcement_learning/corridor.sh [--small|--full] [--seed N] [--out DIR] [--print]
. "$(dirname -- "${BASH_SOURCE[0]}")/../recipe.sh" corridor "$@"
