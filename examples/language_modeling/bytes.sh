# Sourced by the scripts that train on bytes or letters (enwik8, text8, persistent_memory): recipe.sh, and their common
# settings. Feedback Transformer: v3 Table 9 and §7.6. All-attention, and its baselines relative_transformer_lm_char_small
# and relative_transformer_lm_char_large: All-attention §5.1.

. "$(dirname -- "${BASH_SOURCE[0]}")/recipe.sh"

metric=bpb result=bits_per_token

full_setting() {
    valid_streams=64 test_streams=8 # (the published all-attention code evaluates with 8, too)
    case $1 in
        all_attention_lm_* | relative_transformer_lm_char_*)
            # The paper gives no number of updates: it fine-tunes "when the loss on validation stops decreasing".
            updates=600000 finetune_updates=25000 every=2000 streams=64 steps=512 lr=0.07
            optimizer=clipped_adagrad
            optimisation=(--adagrad-clip 0.03 --clip-norm 0 --patience 10)
            warmup=(--lr-scheduler fixed --warmup-updates 32000)
            ;;
        *)
            updates=100000 finetune_updates=10000 every=1000 streams=1024 steps=128 lr=0.0015
            optimisation=(--clip-norm 0.1)
            # "the BPTT length is decreased to 64 for the first half of the training"
            warmup=(--lr-scheduler fixed --warmup-updates 8000)
            bptt_warmup=(--bptt-warmup-tokens 64 --bptt-warmup-iterations 50000)
            ;;
    esac
}

small_setting() {
    updates=1500 finetune_updates=150 every=250 streams=64 steps=32 valid_streams=64 test_streams=64 lr=0.002
    optimisation=(--clip-norm 1.0)
    warmup=(--lr-scheduler fixed --warmup-updates 100)
}

shape() {
    model_options+=(--decoder-normalize-before --decoder-layers "$1" --decoder-embed-dim 128 --decoder-attention-heads 4
        --attention-span 64)
    ffn=512
}
