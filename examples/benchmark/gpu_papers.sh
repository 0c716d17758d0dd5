#!/usr/bin/env bash
# Trains the papers' own sizes on a GPU for some minutes, and writes one page with learning curves and speeds:
#   bash examples/benchmark/gpu_papers.sh [--minutes 8] [--ptb DIR] [--out DIR] [--work DIR] [--cpu]
# The same command goes on. --ptb: the folder of ptb.train.txt, … (or .txt.gz). --work: for data and checkpoints (default:
# OUT/work). --keep-checkpoints all: also to OUT, in parts of at most 16 MB, from which another machine goes on.
# --only "walk ptb algorithmic blocks lm rl translation": some of the pieces. --cpu, variables: as gpu.sh.
. "$(dirname -- "${BASH_SOURCE[0]}")/gpu.sh"
