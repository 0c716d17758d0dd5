#!/usr/bin/env bash
# IWSLT'14 de-en in the setting of v3 §6.2 and Table 8; on a CPU, small, on Multi30k:
#   bash examples/translation/iwslt14_de_en/run.sh IWSLT
#   bash examples/translation/iwslt14_de_en/run.sh --small MULTI30K
# IWSLT: the folder iwslt14.tokenized.de-en of fairseq's prepare-iwslt14.sh. MULTI30K: task 1's raw train.de.gz, …
# Options and steps: ../README.md.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh"

corpus=iwslt14_de_en pair="de en" metric=tokenized_bleu:tokenized_bleu

full_setting() {
    # "we use beam size 5 without checkpoint averaging"
    updates=50000 tokens=4096 every=1000 averaged=1 lenpens="1.0" default_layers="6 4 2 1"
    architectures="transformer_iwslt_de_en feedback_decoder_iwslt_de_en"
    training=(--lr 0.0005 --lr-scheduler inverse_sqrt --warmup-updates 4000 --weight-decay 0.0001 --dropout 0.3
        --share-decoder-input-output-embed)
    decoding=(--beam 5)
}

small_setting() {
    updates=1000 tokens=2000 every=100 averaged=1 lenpens="0.6 1.0 1.4" default_layers="1 2"
    architectures="transformer feedback_decoder"
    training=(--lr 0.002 --lr-scheduler inverse_sqrt --warmup-updates 300 --dropout 0.1 --clip-norm 1.0
        --share-all-embeddings)
    decoding=(--beam 5)
}

shape() {
    model_options+=(--decoder-layers "$1")
    [ $small = no ] || model_options+=(--encoder-layers 3 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256
        --encoder-attention-heads 4 --decoder-attention-heads 4 --encoder-normalize-before --decoder-normalize-before)
}

prepare() {
    local split language
    if [ $small = no ]; then
        for language in $pair; do
            lines "$1/train.$language" 160239
            lines "$1/valid.$language" 7283
            lines "$1/test.$language" 6750
        done
        binarise "$1/" "$2" ""
        return
    fi
    for split in train:train valid:val test:test_2016_flickr; do
        for language in $pair; do
            [ -f "$1/${split#*:}.$language.gz" ] || fail "DATA $1: no ${split#*:}.$language.gz lies there; give Multi30k's task 1, raw"
            unpack "$1/${split#*:}.$language.gz" "$out/${split%:*}.raw.$language"
            words "$out/${split%:*}.raw.$language" $language "$out/${split%:*}.tok.$language"
        done
    done
    subwords 4000 "$out/train.tok"
    binarise "$out/" "$2" .bpe
}

run_recipe "$@"
