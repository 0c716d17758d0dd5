#!/usr/bin/env bash
# WMT'14 English to German with the big Transformer:
#   bash examples/translation/wmt14_en_de/run.sh WMT                 # the setting of v3 §4.2.1 and Table 8, for GPUs
#   bash examples/translation/wmt14_en_de/run.sh --small MULTI30K    # small models on Multi30k, for a CPU
# WMT: the unpacked wmt16_en_de.tar.gz (32K joint BPE).
# MULTI30K: the folder of Multi30k's task 1, raw (train.de.gz, …).
# --print: print the commands without running them. Options and steps: ../README.md.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/../multi30k.sh"

corpus=wmt14_en_de pair="en de" metric=compound_split_bleu:compound_split_bleu

full_setting() {
    # "generate with beam size 5, tuning a length penalty on the dev set. We average the last 10 checkpoints and apply
    # compound splitting and compute tokenized BLEU"
    updates=100000 tokens=458752 every=1500 averaged=10 lenpens="0.2 0.4 0.6 0.8 1.0" default_layers="6 2 1"
    architectures="transformer_wmt_en_de_big feedback_decoder_wmt_en_de_big"
    training=(--lr 0.001 --lr-scheduler inverse_sqrt --warmup-updates 4000 --dropout 0.3 --share-all-embeddings)
    decoding=(--beam 5)
}

prepare() {
    if [ $small = yes ]; then
        prepare_multi30k "$@"
        return
    fi
    check_lines "$1/train.tok.clean.bpe.32000.en" 4500966
    check_lines "$1/newstest2013.tok.bpe.32000.en" 3000
    check_lines "$1/newstest2014.tok.bpe.32000.en" 3003
    binarise "$1" train.tok.clean.bpe.32000 newstest2013.tok.bpe.32000 newstest2014.tok.bpe.32000 "$2" \
        --joined-dictionary
}

run_recipe "$@"
