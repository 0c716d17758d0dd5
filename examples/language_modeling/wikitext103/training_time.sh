#!/usr/bin/env bash
# Training time on WikiText-103 (v1 Table 6): a Transformer; a Feedback Transformer trained from scratch; with BPTT
# warm-up; initialised with the Transformer's parameters; with both.
#   bash examples/language_modeling/wikitext103/training_time.sh wikitext-103-v1.zip    # 139M parameters, for GPUs
#   bash examples/language_modeling/wikitext103/training_time.sh --small WIKITEXT2      # small models, for a CPU
# Models: transformer, feedback, feedback-bptt, initialised, initialised-bptt. OUT/hours.png has the validation perplexity
# against hours of training; those of the initialised models include the Transformer's.
# The paper does not say for how long it trains the initialised model: here, for half as many updates.
# --print: print the commands without running them. Options and steps: ../README.md.
. "$(dirname -- "${BASH_SOURCE[0]}")/../../environment.sh"
recipe wikitext103_training_time "$@"
