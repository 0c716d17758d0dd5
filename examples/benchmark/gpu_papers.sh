#!/usr/bin/env bash
# Trains the papers' own sizes on a GPU for some minutes, and writes one page with learning curves and speeds:
#
#   bash examples/benchmark/gpu_papers.sh [--minutes N] [--ptb DIR] [--out DIR] [--work DIR] [--cpu]
#
# --minutes (default: 8) is for all of it; the same command again goes on. --ptb: PTB's ptb.train.txt and ptb.valid.txt
# (or .txt.gz). --work: for data and checkpoints (default: OUT/work); --keep-checkpoints all copies them to OUT, in parts
# of at most 16 MB, from which another machine goes on. PYTHON=…, FB_FAIRSEQ_VENV=…, --cpu: as gpu.sh.
. "$(dirname -- "${BASH_SOURCE[0]}")/gpu.sh"
