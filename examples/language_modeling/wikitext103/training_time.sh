#!/usr/bin/env bash
# Training time on WikiText-103 (v1 Table 6): a Transformer; a Feedback Transformer trained from scratch; with BPTT
# warm-up; initialised with the Transformer's parameters; with both.
#   bash examples/language_modeling/wikitext103/training_time.sh wikitext-103-v1.zip    # 139M parameters, for GPUs
#   bash examples/language_modeling/wikitext103/training_time.sh --small WIKITEXT2      # small models, for a CPU
# Models: transformer, feedback, feedback-bptt, initialised, initialised-bptt. OUT/hours.png has the validation perplexity
# against hours of training; those of the initialised models include the Transformer's.
# The paper does not say for how long it trains the initialised model: here, for half as many updates.
# --print: print the commands without running them. Options and steps: ../README.md.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/words.sh"

corpus=wikitext103_training_time
full_models="transformer feedback feedback-bptt initialised initialised-bptt"
small_models=$full_models

# describe MODEL: a model is one of the table's rows.
describe() {
    case $1 in
        transformer) model_options=(--arch relative_transformer_lm) ;;
        feedback | feedback-bptt) model_options=(--arch feedback_transformer_lm) ;;
        initialised | initialised-bptt) model_options=(--arch feedback_transformer_lm) origin=transformer ;;
        *) fail "--models $1: unknown; choose from $full_models" ;;
    esac
    twelve_layers
}

# adjust_setting: the number of updates and the BPTT warm-up of the row.
adjust_setting() {
    finetune_updates=0
    case $model in *-bptt) ;; *) bptt_warmup=() ;; esac
    case $model in
        initialised*)
            updates=$(((updates + 1) / 2))
            if [ ${#bptt_warmup[@]} != 0 ]; then bptt_warmup[3]=$(((bptt_warmup[3] + 1) / 2)); fi
            ;;
    esac
}

# draw_hours: draw the validation perplexity of all models against hours of training.
draw_hours() {
    local seed=${seeds%% *} layer=${layers%% *} model curves=()
    set_suffix
    for model in $models; do
        [ $printing = yes ] || [ -e "$out/$model$suffix.log" ] || continue
        case $model in initialised*) curves+=("$model=$out/transformer$suffix.log") ;; esac
        curves+=("$model=$out/$model$suffix.log")
    done
    comment "draw the perplexity against hours of training"
    run python -m fb_fairseq plot --curves "${curves[@]}" --metric ppl --x hours --out "$out/hours.png"
}

run_recipe "$@"
if asked train; then draw_hours; fi
