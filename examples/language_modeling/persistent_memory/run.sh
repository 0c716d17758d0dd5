#!/usr/bin/env bash
# The ablations of All-attention §5.3 (Figure 2): the number of persistent vectors, and how attention combines them with
# the context:
#   bash examples/language_modeling/persistent_memory/run.sh text8.zip       # the paper's setting, for GPUs
#   bash examples/language_modeling/persistent_memory/run.sh --small TEXT    # small models, for a CPU; any text will do
# Models: N0, N64, … (that number of vectors), attn-split, head-split, single-head, ff-attn, and the baseline
# relative_transformer_lm. Both panels of the figure are drawn to OUT/figure2.png.
# --print: print the commands without running them. Options and steps: ../README.md.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/../bytes.sh"

corpus=persistent_memory prompt="in the beginning"
small_models="relative_transformer_lm N0 N64 N128 N256 N512 N1024 attn-split head-split single-head ff-attn"
full_models="N0 N512 N1024 N2048 N4096 attn-split head-split single-head ff-attn"

# describe MODEL: a model is a number of persistent vectors, a variant, or the baseline.
describe() {
    local size=512 arch=all_attention_lm
    [ $small = yes ] || size=2048 arch=all_attention_lm_char_large
    model_options=(--arch $arch)
    case $1 in
        N[0-9]*) model_options+=(--persistent-memory-size "${1#N}") ;;
        # "we decrease the number of layers to 24 and increase the feedforward size to 3072"
        ff-attn)
            if [ $small = yes ]; then
                model_options+=(--persistent-memory-variant "$1" --persistent-memory-size $size)
            else
                model_options+=(--persistent-memory-variant "$1" --persistent-memory-size 3072 --decoder-layers 24)
            fi
            ;;
        attn-split | head-split | single-head)
            model_options+=(--persistent-memory-variant "$1" --persistent-memory-size $size)
            ;;
        relative_transformer_lm)
            # At full size, the larger baseline of All-attention Table 2.
            model_options=(--arch "$1$([ $small = yes ] || echo _char_large)")
            ;;
        *) fail "--models $1: unknown; give N<number>, attn-split, head-split, single-head, ff-attn, relative_transformer_lm" ;;
    esac
}

# As in the paper, all models normalise after each sublayer.
shape() {
    model_options+=(--decoder-layers "$1" --decoder-embed-dim 128 --decoder-attention-heads 4 --attention-span 64)
    ffn=512
}

prepare() {
    local text=$2/text
    given "$1" || fail "DATA $1: no such file; give text8 or text8.zip (http://mattmahoney.net/dc/text8.zip), or" \
        "--small TEXT"
    unpack "$1" "$text" text8
    [ $small = yes ] || check_file "$text" 100000000 3bea1919949baf155f99411df5fada7e text8
    run python -m fb_fairseq preprocess-bytes --text "$text" --split 90,5,5 --destdir "$2"
}

run_recipe "$@"
if asked train; then
    comment "draw the figure of the paper"
    run python examples/language_modeling/persistent_memory/draw.py "$out"
fi
