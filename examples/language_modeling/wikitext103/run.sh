#!/usr/bin/env bash
# WikiText-103 with adaptive input and softmax:
#   bash examples/language_modeling/wikitext103/run.sh wikitext-103-v1.zip    # the setting of v3 Table 9, for GPUs
#   bash examples/language_modeling/wikitext103/run.sh --small WIKITEXT2      # small models, for a CPU
# --models feedback_transformer_lm_wikitext103_large: the large model of Table 9.
# WIKITEXT2: a folder with train.txt, valid.txt and test.txt (or .txt.gz, or wiki.train.tokens, …).
# --print: print the commands without running them. Options and steps: ../README.md.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/../recipe.sh"

corpus=wikitext103 full_models=feedback_transformer_lm_wikitext103_small metric=ppl prompt="The"

full_setting() {
    if [ "$1" = all_attention_lm_wikitext103 ]; then  # All-attention §5.1, which gives no number of updates
        updates=200000 finetune_updates=0 every=2000 streams=64 steps=256 valid_streams=64 lr=0.00025
        optimisation=(--clip-norm 1.0)
        warmup=(--lr-scheduler fixed --warmup-updates 8000)
        return
    fi
    updates=200000 finetune_updates=10000 every=2000 streams=512 steps=256 valid_streams=64 lr=0.0007
    optimisation=(--clip-norm 0.1)
    # "The BPTT length is increased from 32 to 256 during training, doubling after every 50k updates" (v1)
    warmup=(--lr-scheduler fixed --warmup-updates 8000 --bptt-warmup-tokens 32 --bptt-warmup-iterations 50000)
}

small_setting() {
    updates=600 finetune_updates=60 every=200 streams=64 steps=32 valid_streams=64 lr=0.002
    optimisation=(--clip-norm 0.5)
    warmup=(--lr-scheduler fixed --warmup-updates 100)
}

shape() {
    model_options+=(--decoder-normalize-before --decoder-layers "$1" --decoder-embed-dim 128
        --decoder-attention-heads 4 --attention-span 64 --adaptive-input --adaptive-input-cutoff 2000,8000
        --adaptive-softmax-cutoff 2000,8000 --tie-adaptive-weights --tie-adaptive-proj --attention-dropout 0.1
        --embedding-dropout 0.1 --output-dropout 0.1)
    [ "$model" = all_attention_lm ] || model_options+=(--activation-dropout 0.1)
    ffn=512
}

prepare() {
    local split file url=https://s3.amazonaws.com/research.metamind.io/wikitext/wikitext-103-v1.zip
    [ $small = yes ] || case $1 in
        *.zip)
            given "$1" || fail "DATA $1: no such file; give wikitext-103-v1.zip"
            check_file "$1" "" 9ddaacaf6af0710eda8c456decff7832 wikitext-103-v1.zip
            ;;
        *) [ $printing = yes ] || fail "DATA $1: give wikitext-103-v1.zip ($url), or --small and a folder" ;;
    esac
    for split in train valid test; do
        if [ $small = yes ]; then
            for file in "$1/$split.txt" "$1/$split.txt.gz" "$1/wiki.$split.tokens" ""; do
                [ ! -s "$file" ] || break
            done
            [ -n "$file" ] || [ $printing = no ] || file=$1/$split.txt
            [ -n "$file" ] ||
                fail "DATA $1: no $split.txt, $split.txt.gz or wiki.$split.tokens in this folder; give WikiText-2's"
            check_text "$file"
            unpack "$file" "$2/$split.words"
        else
            unpack "$1" "$2/$split.words" "wikitext-103/wiki.$split.tokens"
        fi
    done
    preprocess "$2" train.words valid.words test.words "$2" --only-source
}

run_recipe "$@"
