# Sourced by the translation scripts: recipe.sh, and the setting of --small, small models on Multi30k.

. "$(dirname -- "${BASH_SOURCE[0]}")/recipe.sh"

small_setting() {
    updates=${own_updates:-1000} tokens=2000 every=100 averaged=1 lenpens="0.6 1.0 1.4" default_layers="1 2"
    architectures="transformer feedback_decoder"
    training=(--lr 0.004 --lr-scheduler cosine --warmup-updates $((updates * 3 / 10))
        --dropout 0.1 --clip-norm 1.0 --share-all-embeddings)
    decoding=(--beam 5)
}

shape() {
    model_options+=(--decoder-layers "$1")
    [ $small = no ] || model_options+=(--encoder-layers 3 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256
        --encoder-attention-heads 4 --decoder-attention-heads 4 --encoder-normalize-before --decoder-normalize-before)
}

# prepare_multi30k DATA DESTDIR: tokenise Multi30k, split it into subwords and binarise it.
prepare_multi30k() {
    local split file language
    for split in train:train valid:val test:test_2016_flickr; do
        for language in $pair; do
            file=$1/${split#*:}.$language.gz
            given "$file" || fail "DATA $1: no ${split#*:}.$language.gz in this folder; give Multi30k's task 1, raw"
            check_text "$file"
            unpack "$file" "$2/${split%:*}.raw.$language"
            tokenise "$2/${split%:*}.raw.$language" "$language" "$2/${split%:*}.tok.$language"
        done
    done
    apply_bpe 4000 "$2"
}
