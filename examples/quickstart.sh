#!/usr/bin/env bash
# Trains a small Feedback Transformer on the bytes of real text, in a few minutes on a CPU, starting from a fresh clone:
#
#   bash examples/quickstart.sh [--text FILE] [--minutes 2|10|60] [--updates N] [--out DIR] [--print]
#
#   --text FILE    text to train on (default: the source code of the Python standard library, which every machine has)
#   --minutes N    how long training takes, about, on two idle CPU cores: 2 (default), 10 or 60. A larger model is
#                  trained in 10 or 60
#   --updates N    number of training updates (default: as many as fit)
#   --out DIR      folder for the data, the model and the figure (default: runs/quickstart, runs/quickstart-10, …)
#   --setup-only   only create the environment
#   --print        print the commands without running them
#
# Where the package is installed, fb-fairseq quickstart does the same.
# PYTHON=… and FB_FAIRSEQ_VENV=… choose the interpreter and the environment (see environment.sh).
# Run it again to resume; what is done is not repeated.
. "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"
if [ "${1:-}" = --setup-only ]; then make_environment; exit; fi
recipe quickstart "$@"
