#!/usr/bin/env bash
# A colour is seen at the start of a corridor, and asked for at its end (v3 §4.1.1, Figure 3): success against memory size.
#   bash examples/reinforcement_learning/corridor.sh [--small|--full] [--seed N] [--out DIR]
# Options: ./README.md.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/recipe.sh"

environment=corridor agents="feedback transformer" small_spans="4 8 16" full_spans="5 10 20 50 100 200"

run_agents "$@"
