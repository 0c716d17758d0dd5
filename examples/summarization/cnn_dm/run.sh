#!/usr/bin/env bash
# CNN/DailyMail:
#   bash examples/summarization/cnn_dm/run.sh CNNDM             # the setting of v3 §6.3 and Table 8, for GPUs
#   bash examples/summarization/cnn_dm/run.sh --small SAMPLE    # small models on a sample, for a CPU
# CNNDM: a folder with train.csv, validation.csv and test.csv (or .csv.gz; columns article and highlights).
# SAMPLE: a folder with any such CSV files, with at least 300 pairs in total.
# --print: print the commands without running them. Options and steps: ../../translation/README.md.
. "$(dirname -- "${BASH_SOURCE[0]}")/../../recipe.sh" cnn_dm "$@"
