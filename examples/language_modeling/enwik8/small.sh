#!/usr/bin/env bash
# Feedback Transformer against its baseline at equal parameters and updates, on the start of enwik8 (or any text), on
# a CPU:  bash examples/language_modeling/enwik8/small.sh TEXT [--layers "2 4"] [--updates N] [--seed N] [--out DIR]
#
# TEXT: a file (.gz is unpacked), cut into 90 % to train on, 5 % to validate and 5 % to test on.
# Writes OUT/results.json, and the curves to OUT/curves.png.
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
. "$repository/examples/environment.sh"
. "$repository/examples/language_modeling/compare.sh"
layers="2 4" updates=1500 seed=1 steps=32 valid_streams=64 out=$repository/runs/enwik8-small
recipe_options="layers updates seed out" parse_recipe "$@"
[ -s "$input" ] || fail "TEXT ${input:-(none given)}: give a file, for example enwik8"
mkdir -p "$out"
out=$(cd "$out" && pwd)
unpack "$input" "$out/text"

cd "$repository"
make_environment
python -m fb_fairseq.preprocess_bytes --text "$out/text" --destdir "$out/data" | tee "$out/data.log"
for depth in $layers; do
    compare_models "$out/data" "$out" "$depth" --decoder-layers "$depth" --decoder-embed-dim 128 \
        --decoder-ffn-embed-dim 512 --decoder-attention-heads 4 --attention-span 64 --batch-size 64 --lr 0.002 \
        --clip-norm 1.0
done
write_results "$out" bpb
