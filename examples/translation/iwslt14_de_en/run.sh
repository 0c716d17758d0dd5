#!/usr/bin/env bash
# IWSLT'14 German to English:
#   bash examples/translation/iwslt14_de_en/run.sh IWSLT               # the setting of v3 §6.2 and Table 8, for GPUs
#   bash examples/translation/iwslt14_de_en/run.sh --small MULTI30K    # small models on Multi30k, for a CPU
# IWSLT: the folder iwslt14.tokenized.de-en that fairseq's prepare-iwslt14.sh writes.
# MULTI30K: the folder of Multi30k's task 1, raw (train.de.gz, …).
# --print: print the commands without running them. Options and steps: ../README.md.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/../multi30k.sh"

corpus=iwslt14_de_en pair="de en" metric=tokenized_bleu:tokenized_bleu

full_setting() {
    # "we use beam size 5 without checkpoint averaging"
    updates=50000 tokens=4096 every=1000 averaged=1 lenpens="1.0" default_layers="6 4 2 1"
    architectures="transformer_iwslt_de_en feedback_decoder_iwslt_de_en"
    training=(--lr 0.0005 --lr-scheduler inverse_sqrt --warmup-updates 4000 --weight-decay 0.0001 --dropout 0.3
        --share-decoder-input-output-embed)
    decoding=(--beam 5)
}

prepare() {
    local language
    if [ $small = yes ]; then
        prepare_multi30k "$@"
        return
    fi
    for language in $pair; do
        check_lines "$1/train.$language" 160239
        check_lines "$1/valid.$language" 7283
        check_lines "$1/test.$language" 6750
    done
    binarise "$1" train valid test "$2"
}

run_recipe "$@"
