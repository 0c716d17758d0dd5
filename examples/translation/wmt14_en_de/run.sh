#!/usr/bin/env bash
# WMT'14 English to German with the big Transformer:
#   bash examples/translation/wmt14_en_de/run.sh WMT                 # the setting of v3 §4.2.1 and Table 8, for GPUs
#   bash examples/translation/wmt14_en_de/run.sh --small MULTI30K    # small models on Multi30k, for a CPU
# WMT: the unpacked wmt16_en_de.tar.gz (32K joint BPE).
# MULTI30K: the folder of Multi30k's task 1, raw (train.de.gz, …).
# Models: transformer, feedback (with shared projections: "in experiments on large datasets", v3 §4), initialised (with
# per-layer projections), and deep-encoder: 12 encoder and 2 decoder layers with LayerDrop (v3 §4.2.1: 29.0 BLEU).
# --print: print the commands without running them. Options and steps: ../README.md.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/../multi30k.sh"

more_models=deep-encoder
corpus=wmt14_en_de pair="en de" metric=compound_split_bleu:compound_split_bleu

full_setting() {
    # "generate with beam size 5, tuning a length penalty on the dev set. We average the last 10 checkpoints and apply
    # compound splitting and compute tokenized BLEU"
    default_projections=shared
    updates=100000 tokens=458752 every=1500 averaged=10 lenpens="0.2 0.4 0.6 0.8 1.0" default_layers="6 2 1"
    [ "$models" != deep-encoder ] || default_layers=2
    architectures="transformer_wmt_en_de_big feedback_decoder_wmt_en_de_big"
    training=(--lr 0.001 --lr-scheduler inverse_sqrt --warmup-updates 4000 --dropout 0.3 --share-all-embeddings)
    decoding=(--beam 5)
}

# describe deep-encoder: the setting has its own numbers of layers. The paper does not give the rate of LayerDrop: here it
# is that of Fan et al. 2019 (arXiv 1909.11556).
describe() {
    [ "$layer" = 2 ] || fail "--layers $layer: the model $1 has 2 decoder layers; give --layers 2"
    own_projections=${projections:-$default_projections}
    model_options=(${model_options[@]+"${model_options[@]}"} --encoder-layers 12 --encoder-layerdrop 0.2)
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
