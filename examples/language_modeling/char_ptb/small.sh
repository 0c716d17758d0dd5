#!/usr/bin/env bash
# Character-level Penn Treebank with the papers' two-layer model, at a quarter of its width, on a CPU:
#   bash examples/language_modeling/char_ptb/small.sh PTB [--layers 2] [--updates N] [--seed N] [--out DIR]
#
# PTB: a folder with the word-level files ptb.{train,valid,test}.txt (or .txt.gz), Mikolov's form.
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
. "$repository/examples/environment.sh"
. "$repository/examples/language_modeling/compare.sh"
layers=2 updates=1000 seed=1 steps=32 valid_streams=64 out=$repository/runs/char_ptb-small
recipe_options="layers updates seed out" parse_recipe "$@"
mkdir -p "$out"
out=$(cd "$out" && pwd)
for split in train valid test; do
    file=$input/ptb.$split.txt
    [ -s "$file" ] || file=$file.gz
    [ -s "$file" ] || fail "PTB ${input:-(none given)}: no ptb.$split.txt or ptb.$split.txt.gz lies there; give their folder"
    # A token is a character, _ between words; fairseq's </s> stands for the end of a line.
    unpack "$file" "$out/$split.words"
    sed -e 's/^ //; s/ $//; s/ /_/g; s/./& /g' "$out/$split.words" >"$out/$split.chars"
done

cd "$repository"
make_environment
rm -rf "$out/data"
fairseq-preprocess --only-source --trainpref "$out/train.chars" --validpref "$out/valid.chars" \
    --testpref "$out/test.chars" --destdir "$out/data" --workers 1 >"$out/preprocess.log" 2>&1 ||
    fail "preprocessing stopped; $out/preprocess.log says more"
# The papers vary the depth at constant parameters (v3 Figure 9): feed-forward and head width inversely to it.
# From 6 layers of F = 384 and head width 24 (a quarter of Table 9's):
compare_models "$out/data" "$out" "$layers" --decoder-layers "$layers" --decoder-embed-dim 96 \
    --decoder-ffn-embed-dim $((384 * 6 / layers)) --decoder-attention-heads 4 --decoder-head-dim $((24 * 6 / layers)) \
    --attention-span 64 --batch-size 64 --lr 0.002 --clip-norm 1.0 --attention-dropout 0.1 --activation-dropout 0.1
write_results "$out" loss
