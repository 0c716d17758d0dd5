#!/usr/bin/env bash
# The ablation on WikiText-103 of v3 Table 6 (v1 Table 7): post-norm, or pre-norm with a higher learning rate; the
# adaptive span; increasing the BPTT length. Perplexity on the validation set, without fine-tuning.
#   bash examples/language_modeling/wikitext103/ablation.sh wikitext-103-v1.zip    # 12 layers, 139M parameters, for GPUs
#   bash examples/language_modeling/wikitext103/ablation.sh --small WIKITEXT2      # small models, for a CPU
# The paper's perplexities are those of v1 Table 6, whose models have 12 layers and 140M parameters; here these are
# wikitext103_large with 12 layers and half the feed-forward width. The paper does not give the lower learning rate:
# here it is 0.00025, as in the all-attention paper, whose models are post-norm.
# --print: print the commands without running them. Options and steps: ../README.md.
. "$(dirname -- "${BASH_SOURCE[0]}")/../../recipe.sh" wikitext103_ablation "$@"
