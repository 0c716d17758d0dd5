#!/usr/bin/env bash
# WikiText-2 with adaptive input and softmax, small sizes, on a CPU:
#   bash examples/language_modeling/wikitext103/small.sh WIKITEXT2 [--updates N] [--seed N] [--out DIR]
#
# WIKITEXT2: a folder with train, valid and test as .txt or .txt.gz (or wiki.train.tokens, …).
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
. "$repository/examples/environment.sh"
. "$repository/examples/language_modeling/compare.sh"
updates=600 seed=1 steps=32 valid_streams=64 out=$repository/runs/wikitext2-small
recipe_options="updates seed out" parse_recipe "$@"
mkdir -p "$out"
out=$(cd "$out" && pwd)
for split in train valid test; do
    for file in "$input/$split.txt" "$input/$split.txt.gz" "$input/wiki.$split.tokens" ""; do [ -s "$file" ] && break; done
    [ -n "$file" ] || fail "WIKITEXT2 ${input:-(none given)}: no $split.txt, $split.txt.gz or wiki.$split.tokens lies there"
    unpack "$file" "$out/$split.words"
done

cd "$repository"
make_environment
rm -rf "$out/data"
fairseq-preprocess --only-source --trainpref "$out/train.words" --validpref "$out/valid.words" \
    --testpref "$out/test.words" --destdir "$out/data" --workers 1 >"$out/preprocess.log" 2>&1 ||
    fail "preprocessing stopped; $out/preprocess.log says more"
cutoffs=2000,8000
compare_models "$out/data" "$out" words --decoder-layers 2 --decoder-embed-dim 128 --decoder-ffn-embed-dim 512 \
    --decoder-attention-heads 4 --attention-span 64 --batch-size 64 --lr 0.002 --clip-norm 0.5 --adaptive-input \
    --adaptive-input-cutoff $cutoffs --adaptive-softmax-cutoff $cutoffs --tie-adaptive-weights --tie-adaptive-proj \
    --attention-dropout 0.1 --activation-dropout 0.1 --embedding-dropout 0.1 --output-dropout 0.1
write_results "$out" ppl
