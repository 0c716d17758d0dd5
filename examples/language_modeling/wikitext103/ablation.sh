#!/usr/bin/env bash
# The ablation on WikiText-103 of v3 Table 6 (v1 Table 7): post-norm, or pre-norm with a higher learning rate; the
# adaptive span; increasing the BPTT length. Perplexity on the validation set, without fine-tuning.
#   bash examples/language_modeling/wikitext103/ablation.sh wikitext-103-v1.zip    # 12 layers, 139M parameters, for GPUs
#   bash examples/language_modeling/wikitext103/ablation.sh --small WIKITEXT2      # small models, for a CPU
# The paper's perplexities are those of v1 Table 6, whose models have 12 layers and 140M parameters; here these are
# wikitext103_large with 12 layers and half the feed-forward width. The paper does not give the lower learning rate:
# here it is 0.00025, as in the all-attention paper, whose models are post-norm.
# --print: print the commands without running them. Options and steps: ../README.md.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/words.sh"

corpus=wikitext103_ablation
full_models="transformer-post transformer-post-bptt transformer-pre-bptt transformer-pre-span feedback-post\
 feedback-post-bptt feedback-pre-bptt feedback-pre-span-bptt"
small_models=$full_models

# describe MODEL: a model is one of the table's rows.
describe() {
    local arch
    case " $full_models " in *" $1 "*) ;; *) fail "--models $1: unknown; choose from $full_models" ;; esac
    case $1 in transformer-*) arch=relative_transformer_lm ;; *) arch=feedback_transformer_lm ;; esac
    model_options=(--arch $arch)
    twelve_layers
    case $1 in *-post*) variant+=(--no-decoder-normalize-before) ;; esac
    case $1 in *-span*) extend_span ;; esac
}

# adjust_setting: the learning rate and BPTT warm-up of the row.
adjust_setting() {
    finetune_updates=0
    case $model in *-post*) lr=${own_lr:-$lower_lr} ;; esac
    case $model in *-bptt) ;; *) bptt_warmup=() ;; esac
}

run_recipe "$@"
