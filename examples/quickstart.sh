#!/usr/bin/env bash
# Trains a small Feedback Transformer on the bytes of real text, in a few minutes on a CPU, starting from a fresh clone:
#
#   bash examples/quickstart.sh [--text FILE] [--minutes 2|10|60] [--updates N] [--out DIR] [--print]
#
#   --text FILE    text to train on (default: the source code of the Python standard library, which every machine has)
#   --minutes N    how long training takes, about, on two idle CPU cores: 2 (default), 10 or 60. A larger model is
#                  trained in 10 or 60
#   --updates N    number of training updates (default: as many as fit)
#   --out DIR      folder for the data, the model and the figure (default: runs/quickstart, runs/quickstart-10min, …)
#   --setup-only   only create the environment
#   --print        print the commands without running them
#
# PYTHON=… and FB_FAIRSEQ_VENV=… choose the interpreter and the environment (see environment.sh).
# Run it again to resume; finished steps are skipped.
set -euo pipefail

. "$(dirname -- "${BASH_SOURCE[0]}")/steps.sh"

text="" minutes=2 updates="" out=""
while [ $# -gt 0 ]; do
    case $1 in
        --text | --minutes | --updates | --out)
            case ${2:-} in "" | --*) fail "$1 needs a value" ;; esac
            printf -v "${1#--}" %s "$2"
            shift 2
            ;;
        --print) printing=yes; shift ;;
        --setup-only) make_environment; exit ;;
        *) fail "$1: unknown option; give --text FILE, --minutes N, --updates N, --out DIR, --setup-only or --print" ;;
    esac
done
[ -z "$text" ] || { [ -f "$text" ] && [ -s "$text" ]; } ||
    fail "--text $text: no such file, or an empty one; choose another"
case $minutes in
    # How these settings were found: results.md. In so few updates, a longer span is no better.
    2) fitting=1000 layers=2 width=128 span=16 lr=0.006 ;;
    10) fitting=2300 layers=3 width=192 span=32 lr=0.004 ;;
    60) fitting=7500 layers=3 width=256 span=32 lr=0.003 ;;
    *) fail "--minutes $minutes: give 2, 10 or 60" ;;
esac
updates=${updates:-$fitting}
out=${out:-$repository/runs/quickstart$([ "$minutes" = 2 ] || echo "-${minutes}min")}
check_number --updates "$updates"
absolute text
check_out
start

library=""
if [ $printing = no ]; then
    # A folder with another model is left alone.
    library=$(python -c 'import sys, sysconfig; print(sys.version.split()[0], sysconfig.get_paths()["stdlib"])')
    setting="$minutes minutes, $updates updates, $(if [ -n "$text" ]; then cksum <"$text"; else echo "$library"; fi)"
    if [ "$(cat "$out/setting" 2>/dev/null)" != "$setting" ]; then
        [ ! -e "$out/checkpoints" ] ||
            fail "--out $out: holds a model with another --text, --minutes or --updates; choose another folder"
    fi
    printf '%s\n' "$setting" >"$out/setting"
    echo "== Data: bytes of ${text:-the Python standard library}"
fi

# prepare TEXT DESTDIR: binarise the bytes of the text or, if it is empty, of the Python standard library.
prepare() {
    local command=(python examples/standard_library.py "$2")
    [ -z "$1" ] || command=(python -m fb_fairseq preprocess-bytes --text "$1" --split 90,5,5 --destdir "$2")
    if [ $printing = yes ]; then show "" "${command[@]}"; else "${command[@]}" >"$2/sizes"; fi
}

input=$text data=$out/data
if [ -n "$text" ]; then prepare_data bytes; else prepare_data "$library"; fi
[ $printing = yes ] || cat "$data/sizes"

comment train
seed=1 cpu=--cpu extra=()
run_training "$out/checkpoints" "$updates" $(((updates + 4) / 5)) "$data" --task streaming_lm \
    --arch feedback_transformer_lm --decoder-layers $layers --decoder-embed-dim $width \
    --decoder-ffn-embed-dim $((4 * width)) --decoder-attention-heads 4 --decoder-normalize-before --attention-span $span \
    --tokens-per-sample 32 --batch-size 48 --valid-streams 32 --criterion lm_loss \
    --optimizer adam --lr $lr --lr-scheduler cosine --warmup-updates 100 --clip-norm 1.0 --keep-interval-updates 1

comment evaluate
[ $printing = yes ] || printf '\n== Evaluating on the test split\n'
logged evaluation "$out/eval.log" fairseq-eval-lm "$data" --user-dir fb_fairseq --task streaming_lm --gen-subset test \
    --valid-streams 32 --tokens-per-sample 32 --path "$out/checkpoints/checkpoint_best.pt" --cpu
comment "draw the learning curve and the memory weights"
run python -m fb_fairseq plot --curves "$out/checkpoints.log" --metric bpb --title "Feedback Transformer on bytes" \
    --layer-weights "$out/checkpoints/checkpoint_best.pt" --out "$out/quickstart.png"

# The beginning of the text, as far as it is ASCII, in the first line.
prompt="def __init__(self"
[ -z "$text" ] || prompt=$(head -c 60 "$text" | head -n 1 | LC_ALL=C tr -cd '[:print:]' | sed 's/\\/\\\\/g')
comment "generate"
[ $printing = yes ] || echo "== Sampling from the model"
run python -m fb_fairseq generate --path "$out/checkpoints/checkpoint_best.pt" --data "$data" \
    --prompt "$prompt" --length 260 --seed 1 --cpu
[ $printing = no ] || exit 0

# fairseq-eval-lm prints bits per token. Bits per byte are all bits, including those of </s>, divided by the bytes of
# the split, from data/sizes: "test: 8 documents, 311137 bytes, 311145 tokens".
echo
awk -v bits="$(sed -n 's/.*Loss (base 2): \([0-9.]*\),.*/\1/p' "$out/eval.log")" -F '[ ,:]+' '
    /^test:/ { printf "Test split: %.3f bits per byte (%d bytes)\n", bits * $6 / $4, $4 }' "$data/sizes"
echo "It took $((SECONDS / 60)) min $((SECONDS % 60)) s. Model: $out/checkpoints/checkpoint_best.pt"
