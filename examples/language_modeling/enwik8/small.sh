#!/usr/bin/env bash
# Feedback Transformer against its baseline at equal parameters and updates, on the start of enwik8 (or any text), on
# a CPU:  bash examples/language_modeling/enwik8/small.sh TEXT [--layers "2 4"] [--updates N] [--seed N] [--out DIR]
#
# TEXT: a file (.gz is unpacked), cut into 90 % to train on, 5 % to validate and 5 % to test on.
# Writes OUT/results.json, and the curves to OUT/curves.png.
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
text= layers="2 4" updates=1500 seed=1 out=$repository/runs/enwik8-small
while [ $# -gt 0 ]; do
    case $1 in
        --layers | --updates | --seed | --out)
            [ $# -ge 2 ] || { echo "error: $1 needs a value" >&2; exit 2; }
            declare "${1#--}=$2"
            shift 2
            ;;
        -*) echo "error: $1: unknown option; there are --layers, --updates, --seed and --out" >&2; exit 2 ;;
        *) text=$1; shift ;;
    esac
done
[ -s "$text" ] || { echo "error: TEXT ${text:-(none given)}: give a file, for example enwik8" >&2; exit 2; }
text=$(cd "$(dirname "$text")" && pwd)/$(basename "$text")

mkdir -p "$out"
out=$(cd "$out" && pwd)

cd "$repository"
. examples/environment.sh
make_environment
case $text in
    *.gz) gzip -dc "$text" >"$out/text" ;;
    *) cp "$text" "$out/text" ;;
esac
python -m fb_fairseq.preprocess_bytes --text "$out/text" --destdir "$out/data" | tee "$out/data.log"

results=()
curves=()
for depth in $layers; do
    for arch in feedback_transformer_lm relative_transformer_lm; do
        run=$out/$arch-$depth
        # One projection a layer: but for its 1 + layers scalars, the Feedback Transformer has the baseline's parameters.
        projections=
        [ $arch = relative_transformer_lm ] || projections="--memory-projections per-layer"
        echo "== $arch, $depth layers"
        rm -rf "$run" "$run.log"
        started=$SECONDS
        fairseq-train "$out/data" --user-dir fb_fairseq --task streaming_lm --arch $arch $projections \
            --decoder-layers "$depth" --decoder-embed-dim 128 --decoder-ffn-embed-dim 512 --decoder-attention-heads 4 \
            --decoder-normalize-before --attention-span 64 --tokens-per-sample 32 --batch-size 64 --valid-streams 64 \
            --criterion lm_loss --optimizer adam --lr 0.002 --lr-scheduler cosine --warmup-updates 100 --clip-norm 1.0 \
            --max-update "$updates" --validate-interval-updates 250 --save-interval-updates "$updates" \
            --no-epoch-checkpoints --cpu --seed "$seed" --log-format json --log-interval 25 --log-file "$run.log" \
            --save-dir "$run" >/dev/null || fail "training stopped; $run.log says more"
        seconds=$((SECONDS - started))
        fairseq-eval-lm "$out/data" --user-dir fb_fairseq --task streaming_lm --gen-subset test --valid-streams 64 \
            --tokens-per-sample 32 --path "$run/checkpoint_last.pt" --cpu >"$run.eval" 2>&1 ||
            fail "evaluation stopped; $run.eval says more"
        bits=$(sed -n 's/.*Loss (base 2): \([0-9.]*\),.*/\1/p' "$run.eval")
        parameters=$(sed -n 's/.*shared model params: \([0-9,]*\) .*/\1/p' "$run.log" | tr -d , | tail -n 1)
        echo "$bits bits per byte on the test split, $parameters parameters, trained in $seconds s"
        results+=("\"$arch-$depth\": {\"test_bits_per_byte\": $bits, \"parameters\": ${parameters:-null}, \"seconds\": $seconds}")
        curves+=("$arch-$depth=$run.log")
    done
done
(IFS=,; echo "{${results[*]}}") | python -m json.tool >"$out/results.json"
python -m fb_fairseq.plot --curves "${curves[@]}" --metric bpb --out "$out/curves.png"
