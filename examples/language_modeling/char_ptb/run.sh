#!/usr/bin/env bash
# Character-level Penn Treebank:
#   bash examples/language_modeling/char_ptb/run.sh PTB            # the setting of v3 Table 9, for GPUs
#   bash examples/language_modeling/char_ptb/run.sh --small PTB    # a small model, for a CPU; any text will do
# --layers "1 2 3 6": depths at a constant number of parameters (v3 Figure 9), drawn to OUT/layers.png.
# PTB: the folder of the word-level files ptb.train.txt, ptb.valid.txt and ptb.test.txt (or .txt.gz).
# --print: print the commands without running them. Options and steps: ../README.md.
. "$(dirname -- "${BASH_SOURCE[0]}")/../../recipe.sh" char_ptb "$@"
