#!/usr/bin/env bash
# Character-level Penn Treebank:
#   bash examples/language_modeling/char_ptb/run.sh PTB            # the setting of v3 Table 9, for GPUs
#   bash examples/language_modeling/char_ptb/run.sh --small PTB    # a small model, for a CPU; any text will do
# --layers "1 2 3 6": depths at a constant number of parameters (v3 Figure 9), drawn to OUT/layers.png.
# PTB: the folder of the word-level files ptb.train.txt, ptb.valid.txt and ptb.test.txt (or .txt.gz).
# --print: print the commands without running them. Options and steps: ../README.md.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/../recipe.sh"

corpus=char_ptb full_models=feedback_transformer_lm_char_ptb metric=loss result=bits_per_token prompt="t h e _ c o m p a n y _"

# describe MODEL: a model is an architecture, a memory composition of the Feedback Transformer, or initialised.
describe() {
    local options
    if [ "$1" = initialised ]; then
        describe_initialised
        return
    fi
    options=$(composition_options "$1")
    model_options=(--arch "$1")
    if [ -n "$options" ]; then
        model_options=(--arch feedback_transformer_lm $options)
        [ $small = yes ] || model_options[1]+=_char_ptb
    fi
}

full_setting() {
    updates=15000 finetune_updates=1000 every=250 streams=2048 steps=128 valid_streams=64 test_streams=8
    lr=0.0015
    # "15k updates (or earlier if the validation loss stops decreasing)": after 20 validations without improvement
    optimisation=(--clip-norm 1.0 --patience 20)
    warmup=(--lr-scheduler fixed --warmup-updates 1000)
}

small_setting() {
    updates=1000 finetune_updates=100 every=250 streams=64 steps=32 valid_streams=64 test_streams=64 lr=0.002
    optimisation=(--clip-norm 1.0)
    warmup=(--lr-scheduler fixed --warmup-updates 100)
}

# The papers vary the depth at a constant number of parameters (v3 Figure 9): feed-forward width and head width are
# inversely proportional to it. With --small, 6 layers have F = 384 and heads of width 24, a quarter of Table 9's.
full_shape() {
    [ $((576 % $1)) = 0 ] || fail "--layers $1: give 1, 2, 3, 4, 6, 8, 9 or 12, which divide the widths"
    model_options+=(--decoder-layers "$1" --decoder-head-dim $((96 * 6 / $1)) --decoder-ffn-embed-dim $((1536 * 6 / $1)))
}

shape() {
    [ $((144 % $1)) = 0 ] || fail "--layers $1: give 1, 2, 3, 4, 6, 8, 9 or 12, which divide the widths"
    model_options+=(--decoder-normalize-before --decoder-layers "$1" --decoder-embed-dim 96 --decoder-attention-heads 4
        --decoder-head-dim $((24 * 6 / $1)) --attention-span 64 --attention-dropout 0.1)
    ffn=$((384 * 6 / $1)) vectors=384 activation_dropout=0.1
}

prepare() {
    local split file md5
    for split in train valid test; do
        file=$1/ptb.$split.txt
        [ -s "$file" ] || [ ! -s "$file.gz" ] || file=$file.gz
        [ -s "$file" ] || [ $printing = yes ] ||
            fail "PTB $1: no ptb.$split.txt or ptb.$split.txt.gz in this folder; give the folder of PTB's files"
        check_text "$file"
        unpack "$file" "$2/$split.words"
        case $split in
            train) md5=f26c4b92c5fdc7b3f8c7cdcb991d8420 bytes=5101618 ;;
            valid) md5=aa0affc06ff7c36e977d7cd49e3839bf bytes=399782 ;;
            test) md5=8b80168b89c18661a38ef683c0dc3721 bytes=449945 ;;
        esac
        [ $small = yes ] || check_file "$2/$split.words" $bytes $md5 "ptb.$split.txt"
        # Every character is a token, and _ separates words; the end of a line is fairseq's </s>.
        run python examples/language_modeling/char_ptb/characters.py "$2/$split.words" "$2/$split.chars"
    done
    preprocess "$2" train.chars valid.chars test.chars "$2" --only-source
}

run_recipe "$@"
