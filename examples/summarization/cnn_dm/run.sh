#!/usr/bin/env bash
# CNN/DailyMail:
#   bash examples/summarization/cnn_dm/run.sh CNNDM             # the setting of v3 §6.3 and Table 8, for GPUs
#   bash examples/summarization/cnn_dm/run.sh --small SAMPLE    # small models on a sample, for a CPU
# CNNDM: a folder with train.csv, validation.csv and test.csv (or .csv.gz; columns article and highlights).
# SAMPLE: a folder with any such CSV files, with at least 300 pairs in total.
# --print: print the commands without running them. Options and steps: ../../translation/README.md.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/../../translation/recipe.sh"

corpus=cnn_dm pair="article summary" language=en metric=rouge:rougeL
# 400 words rarely have more than 1024 subwords; without truncation fairseq would stop at an article that does.
task_options=(--truncate-source --max-source-positions 1024 --max-target-positions 1024)

full_setting() {
    updates=50000 tokens=65536 every=1000 averaged=1 lenpens="0.5 1.0 1.5 2.0" default_layers="6 4 2 1"
    architectures="transformer feedback_decoder_cnn_dm"
    training=(--lr 0.0005 --lr-scheduler inverse_sqrt --warmup-updates 4000 --dropout 0.3 --share-all-embeddings)
    # "use 3-gram blocking and tune length": the length penalty first, then the longest and shortest output
    decoding=(--beam 5 --no-repeat-ngram-size 3 --max-len-a 0) lengths="140:20 100:20 180:20 140:40 140:55"
}

small_setting() {
    updates=300 tokens=4000 every=100 averaged=1 lenpens="1.0 2.0" default_layers="1"
    architectures="transformer feedback_decoder"
    training=(--lr 0.002 --lr-scheduler inverse_sqrt --warmup-updates 100 --dropout 0.1 --clip-norm 1.0
        --share-all-embeddings)
    decoding=(--beam 5 --no-repeat-ngram-size 3 --max-len-a 0) lengths="80:10 60:10"
}

shape() {
    model_options+=(--decoder-layers "$1")
    [ $small = no ] || model_options+=(--encoder-layers 2 --encoder-embed-dim 96 --encoder-ffn-embed-dim 192
        --encoder-attention-heads 4 --decoder-attention-heads 4 --encoder-normalize-before --decoder-normalize-before)
}

prepare() {
    local read="run python examples/summarization/cnn_dm/read_csv.py" split file files=() merges=32000
    if [ $small = yes ]; then
        for file in "$1"/*.csv "$1"/*.csv.gz; do
            [ -f "$file" ] || continue
            check_text "$file"
            files+=("$file")
        done
        if [ $printing = yes ] && [ ${#files[@]} = 0 ]; then
            comment "(all .csv and .csv.gz files of DATA instead of this one)"
            files=("$1/articles.csv")
        fi
        [ ${#files[@]} != 0 ] || fail "DATA $1: no *.csv or *.csv.gz in this folder; give another"
        merges=2000
        $read "${files[@]}" --take 100 --source "$2/test.tok.article" --target "$2/test.tok.summary"
        $read "${files[@]}" --skip 100 --take 100 --source "$2/valid.tok.article" --target "$2/valid.tok.summary"
        $read "${files[@]}" --skip 200 --source "$2/train.tok.article" --target "$2/train.tok.summary"
        [ $printing = yes ] || [ "$(wc -l <"$2/train.tok.article")" -ge 100 ] ||
            fail "DATA $1: fewer than 300 pairs; give more"
    else
        for split in train:train valid:validation test:test; do
            for file in "$1/${split#*:}.csv" "$1/${split#*:}.csv.gz" ""; do [ ! -f "$file" ] || break; done
            [ -n "$file" ] || [ $printing = no ] || file=$1/${split#*:}.csv
            [ -n "$file" ] || fail "DATA $1: no ${split#*:}.csv or ${split#*:}.csv.gz in this folder; give another"
            check_text "$file"
            $read "$file" --source "$2/${split%:*}.tok.article" --target "$2/${split%:*}.tok.summary"
        done
        check_lines "$2/train.tok.article" 287113
        check_lines "$2/valid.tok.article" 13368
        check_lines "$2/test.tok.article" 11490
    fi
    apply_bpe $merges "$2"
}

run_recipe "$@"
