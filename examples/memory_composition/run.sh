#!/usr/bin/env bash
# Compares memory compositions (v1 Table 5, v3 Figures 5 and 8) on the blocked random walk and on character-level PTB:
#   bash examples/memory_composition/run.sh PTB              # the papers' setting, 6 layers, for GPUs
#   bash examples/memory_composition/run.sh --small [PTB]    # about two hours on one core; without PTB, the walk only
# --print: print the commands without running them. Options: README.md.
. "$(dirname -- "${BASH_SOURCE[0]}")/../recipe.sh" memory_composition "$@"
