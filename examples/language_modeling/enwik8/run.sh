#!/usr/bin/env bash
# enwik8, byte by byte, in the setting of v3 Table 9; on a CPU, small, on any text:
#   bash examples/language_modeling/enwik8/run.sh enwik8.zip
#   bash examples/language_modeling/enwik8/run.sh --small TEXT
# Options and steps: ../README.md.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh"

corpus=enwik8 metric=bpb prompt="In the beginning "

full_setting() {
    updates=100000 finetune_updates=10000 every=1000 streams=1024 steps=128 valid_streams=64 lr=0.0015
    optimisation=(--clip-norm 0.1)
    # "the BPTT length is decreased to 64 for the first half of the training"
    warmup=(--lr-scheduler fixed --warmup-updates 8000 --bptt-warmup-tokens 64 --bptt-warmup-iterations 50000)
}

small_setting() {
    updates=1500 finetune_updates=150 every=250 streams=64 steps=32 valid_streams=64 lr=0.002 small_layers="2 4"
    optimisation=(--clip-norm 1.0)
    warmup=(--lr-scheduler fixed --warmup-updates 100)
}

shape() {
    model_options+=(--decoder-normalize-before --decoder-layers "$1" --decoder-embed-dim 128 --decoder-ffn-embed-dim 512
        --decoder-attention-heads 4 --attention-span 64)
}

prepare() {
    local text=$out/enwik8
    [ -s "$1" ] || fail "DATA $1: no such file; give enwik8 or enwik8.zip (http://mattmahoney.net/dc/enwik8.zip)"
    unpack "$1" "$text" enwik8
    [ $small = yes ] || check "$text" 100000000 a1fa5ffddb56f4953e226637dabbb36a enwik8
    python -m fb_fairseq.preprocess_bytes --text "$text" --split 90,5,5 --destdir "$2"
}

run_recipe "$@"
