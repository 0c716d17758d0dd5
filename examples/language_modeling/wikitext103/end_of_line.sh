#!/usr/bin/env bash
# End-of-line symbols on WikiText-103 (v3 §7.6): the papers' models were trained on text without them, and fine-tuned on
# text with them, which "alone brought about 1ppl improvement".
#   bash examples/language_modeling/wikitext103/end_of_line.sh wikitext-103-v1.zip    # wikitext103_small, for GPUs
#   bash examples/language_modeling/wikitext103/end_of_line.sh --small WIKITEXT2      # a small model, for a CPU
# Models: without-eos (trained, fine-tuned and evaluated without end-of-line symbols) and with-eos (the last one,
# fine-tuned further and evaluated on text with them). A perplexity is per token, and end-of-line symbols are tokens.
# --print: print the commands without running them. Options and steps: ../README.md.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/words.sh"

corpus=wikitext103_end_of_line
full_models="without-eos with-eos"
small_models=$full_models

# describe MODEL: a model is one of the two stages.
describe() {
    model_options=(--arch feedback_transformer_lm)
    [ $small = yes ] || model_options[1]+=_wikitext103_small
    case $1 in
        without-eos) variant=(--omit-eos) evaluation=(--omit-eos) ;;
        with-eos) start=without-eos ;;
        *) fail "--models $1: unknown; choose from $full_models" ;;
    esac
}

# adjust_setting: the second stage is trained as models are fine-tuned, and for as long.
adjust_setting() {
    if [ "$model" = with-eos ]; then
        updates=$finetune_updates finetune_updates=0 warmup=() bptt_warmup=() lr=$(awk "BEGIN {print $lr / 10}")
    fi
}

run_recipe "$@"
