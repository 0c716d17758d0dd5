#!/usr/bin/env bash
# End-of-line symbols on WikiText-103 (v3 §7.6): the papers' models were trained on text without them, and fine-tuned on
# text with them, which "alone brought about 1ppl improvement".
#   bash examples/language_modeling/wikitext103/end_of_line.sh wikitext-103-v1.zip    # wikitext103_small, for GPUs
#   bash examples/language_modeling/wikitext103/end_of_line.sh --small WIKITEXT2      # a small model, for a CPU
# Models: without-eos (trained, fine-tuned and evaluated without end-of-line symbols) and with-eos (the last one,
# fine-tuned further and evaluated on text with them). A perplexity is per token, and end-of-line symbols are tokens.
# --print: print the commands without running them. Options and steps: ../README.md.
. "$(dirname -- "${BASH_SOURCE[0]}")/../../recipe.sh" wikitext103_end_of_line "$@"
