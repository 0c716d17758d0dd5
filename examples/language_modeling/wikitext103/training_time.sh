#!/usr/bin/env bash
# Training time on WikiText-103 (v1 Table 6): a Transformer; a Feedback Transformer trained from scratch; with BPTT
# warm-up; initialised with the Transformer's parameters; with both.
#   bash examples/language_modeling/wikitext103/training_time.sh wikitext-103-v1.zip    # 139M parameters, for GPUs
#   bash examples/language_modeling/wikitext103/training_time.sh --small WIKITEXT2      # small models, for a CPU
# Models: transformer, transformer-post, feedback, feedback-bptt, initialised, initialised-bptt. OUT/hours.png has the
# validation perplexity against hours of training; these hours, and the days in OUT/results.json, include those of the
# Transformer that the initialised models start from.
# The paper's 19.7 and 19.9 are the post-norm rows of v1 Table 7, whose lower learning rate it does not give (0.00025 here,
# see ablation.sh); initialised models start from transformer-post. The paper's Transformer, 21.2, is not in that table,
# but close to the pre-norm one with BPTT warm-up, 21.0: transformer is pre-norm.
# The paper does not say for how long it trains the initialised model: here, for half as many updates.
# --print: print the commands without running them. Options and steps: ../README.md.
. "$(dirname -- "${BASH_SOURCE[0]}")/../../recipe.sh" wikitext103_training_time "$@"
