#!/usr/bin/env bash
# text8, letter by letter, in the setting of enwik8 (v3 Table 9); on a CPU, small, on any Wikipedia dump or text:
#   bash examples/language_modeling/text8/run.sh text8.zip        (or enwik9, from which text8 is made)
#   bash examples/language_modeling/text8/run.sh --small DUMP
# Options and steps: ../README.md.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh"

corpus=text8 metric=bpb prompt="in the beginning "

full_setting() {
    updates=100000 finetune_updates=10000 every=1000 streams=1024 steps=128 valid_streams=64 lr=0.0015
    optimisation=(--clip-norm 0.1)
    warmup=(--lr-scheduler fixed --warmup-updates 8000 --bptt-warmup-tokens 64 --bptt-warmup-iterations 50000)
}

small_setting() {
    updates=1500 finetune_updates=150 every=250 streams=64 steps=32 valid_streams=64 lr=0.002 small_layers=2
    optimisation=(--clip-norm 1.0)
    warmup=(--lr-scheduler fixed --warmup-updates 100)
}

shape() {
    model_options+=(--decoder-normalize-before --decoder-layers "$1" --decoder-embed-dim 128 --decoder-ffn-embed-dim 512
        --decoder-attention-heads 4 --attention-span 64)
}

prepare() {
    local text=$out/text8 given=$out/given
    [ -s "$1" ] || fail "DATA $1: no such file; give text8 or text8.zip (http://mattmahoney.net/dc/text8.zip), or enwik9"
    unpack "$1" "$given" text8
    if head -c 4096 "$given" | grep -q "<mediawiki"; then
        python examples/language_modeling/text8/clean_wikipedia.py "$given" "$text"
    else
        mv "$given" "$text"
    fi
    [ $small = yes ] || check "$text" 100000000 3bea1919949baf155f99411df5fada7e text8
    python -m fb_fairseq.preprocess_bytes --text "$text" --split 90,5,5 --destdir "$2"
}

run_recipe "$@"
