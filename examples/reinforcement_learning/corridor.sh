#!/usr/bin/env bash
# Corridor: remember a colour from the start to the end (v3 §4.1.1, Figure 3); compares success by memory size.
#   bash examples/reinforcement_learning/corridor.sh [--small|--full] [--seed N] [--out DIR]
# --print: print the commands without running them. Options: README.md.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/recipe.sh"

environment=corridor agents="feedback transformer" small_spans="4 8 16" full_spans="5 10 20 50 100 200"

run_agents "$@"
