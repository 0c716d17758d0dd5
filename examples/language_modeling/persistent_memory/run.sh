#!/usr/bin/env bash
# The ablations of All-attention §5.3 (Figure 2): the number of persistent vectors, and how attention combines them with
# the context:
#   bash examples/language_modeling/persistent_memory/run.sh text8.zip       # the paper's setting, for GPUs
#   bash examples/language_modeling/persistent_memory/run.sh --small TEXT    # small models, for a CPU; any text will do
# Models: N0, N64, … (that number of vectors), attn-split, head-split, single-head, ff-attn, and the baseline
# relative_transformer_lm. Both panels of the figure are drawn to OUT/figure2.png.
# --print: print the commands without running them. Options and steps: ../README.md.
. "$(dirname -- "${BASH_SOURCE[0]}")/../../recipe.sh" persistent_memory "$@"
