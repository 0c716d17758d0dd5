# Sourced by the scripts that train on WikiText (run, ablation, training_time, end_of_line): recipe.sh, and what they have
# in common. Feedback Transformer: v3 Table 9 and §7.6.

. "$(dirname -- "${BASH_SOURCE[0]}")/../recipe.sh"

metric=ppl result=perplexity prompt="The"

full_setting() {
    valid_streams=64 test_streams=8 # (the published all-attention code evaluates with 8, too)
    if [[ $1 = all_attention_lm_wikitext103* ]]; then
        # All-attention §5.1, which gives no number of updates; these are the published code's.
        updates=800000 finetune_updates=50000 every=2000 streams=64 steps=256 lr=0.00025
        optimisation=(--clip-norm 1.0)
        warmup=(--lr-scheduler fixed --warmup-updates 8000)
        return
    fi
    updates=200000 finetune_updates=10000 every=2000 streams=512 steps=256 lr=0.0007
    optimisation=(--clip-norm 0.1)
    warmup=(--lr-scheduler fixed --warmup-updates 8000)
    # "The BPTT length is increased from 32 to 256 during training, doubling after every 50k updates" (v1)
    bptt_warmup=(--bptt-warmup-tokens 32 --bptt-warmup-iterations 50000)
    lower_lr=0.00025 # of post-norm models: that of the all-attention paper
}

small_setting() {
    updates=${own_updates:-600} finetune_updates=60 every=200 streams=64 steps=32 valid_streams=64 test_streams=64 lr=0.008
    optimisation=(--clip-norm 0.5)
    warmup=(--lr-scheduler fixed --warmup-updates 100)
    bptt_warmup=(--bptt-warmup-tokens 8 --bptt-warmup-iterations $(((updates + 2) / 3)))
    lower_lr=0.003 # about the same fraction of lr as in the full setting
}

# extend_span: give $model an adaptive span (v3 §7.6).
extend_span() {
    local span=2048
    [ $small = no ] || span=256
    variant+=(--adaptive-span --attention-span $span --adaptive-span-loss 0.00001)
}

# twelve_layers: in the papers' setting, give $model the 12 layers and 140M parameters of v1 Table 6. (It does not give
# the widths: these are wikitext103_large's, but for the feed-forward width.)
twelve_layers() {
    [ $small = no ] || return 0
    model_options=(--arch "${model_options[1]}_wikitext103_large" --decoder-layers 12 --decoder-ffn-embed-dim 2048)
}

# Feed-forward width and head width are inversely proportional to the depth, so that the number of parameters is
# constant (v3 Figure 9).
shape() {
    [ $((64 % $1)) = 0 ] || fail "--layers $1: give 1, 2, 4, 8, 16 or 32, which divide the widths"
    model_options+=(--decoder-normalize-before --decoder-layers "$1" --decoder-embed-dim 128
        --decoder-attention-heads 4 --decoder-head-dim $((64 / $1)) --attention-span 64 --attention-dropout 0.1
        --adaptive-input --adaptive-input-cutoff 2000,8000 --adaptive-softmax-cutoff 2000,8000 --tie-adaptive-weights
        --tie-adaptive-proj --embedding-dropout 0.1 --output-dropout 0.1)
    ffn=$((1024 / $1)) vectors=512 activation_dropout=0.1
}

full_shape() {
    local base
    case ${model_options[1]} in
        *_transformer_lm_wikitext103_small) base=4 ;;
        *_transformer_lm_wikitext103_large*) base=8 ;;
        *) fail "--layers: only for Transformers and Feedback Transformers; leave out $model" ;;
    esac
    [ $((128 * base % $1)) = 0 ] || fail "--layers $1: give a power of two up to $((128 * base)), which divides the widths"
    model_options+=(--decoder-layers "$1" --decoder-head-dim $((128 * base / $1))
        --decoder-ffn-embed-dim $((4096 * base / $1)))
}

prepare() {
    local split file url=https://s3.amazonaws.com/research.metamind.io/wikitext/wikitext-103-v1.zip
    [ $small = yes ] || case $1 in
        *.zip)
            given "$1" || fail "DATA $1: no such file; give wikitext-103-v1.zip"
            check_file "$1" "" 9ddaacaf6af0710eda8c456decff7832 wikitext-103-v1.zip
            ;;
        *) [ $printing = yes ] || fail "DATA $1: give wikitext-103-v1.zip ($url), or --small and a folder" ;;
    esac
    for split in train valid test; do
        if [ $small = yes ]; then
            for file in "$1/$split.txt" "$1/$split.txt.gz" "$1/wiki.$split.tokens" ""; do
                [ ! -s "$file" ] || break
            done
            [ -n "$file" ] || [ $printing = no ] || file=$1/$split.txt
            [ -n "$file" ] ||
                fail "DATA $1: no $split.txt, $split.txt.gz or wiki.$split.tokens in this folder; give WikiText-2's"
            check_text "$file"
            unpack "$file" "$2/$split.words"
        else
            unpack "$1" "$2/$split.words" "wikitext-103/wiki.$split.tokens"
        fi
    done
    preprocess "$2" train.words valid.words test.words "$2" --only-source
}
