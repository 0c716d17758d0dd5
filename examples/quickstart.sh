#!/usr/bin/env bash
# Trains a small Feedback Transformer on the bytes of real text, in a few minutes on a CPU, starting from a fresh clone:
#
#   bash examples/quickstart.sh [--text FILE] [--updates N] [--out DIR]
#
#   --text FILE    text to train on (default: the source code of the Python standard library, which every machine has)
#   --updates N    number of training updates (default: 600)
#   --out DIR      folder for the data, the model and the figure (default: runs/quickstart)
#
# PYTHON=… and FB_FAIRSEQ_VENV=… choose the interpreter and the environment (see environment.sh).
set -euo pipefail

. "$(dirname -- "${BASH_SOURCE[0]}")/steps.sh"

text="" updates=600 out=$repository/runs/quickstart
while [ $# -gt 0 ]; do
    case $1 in
        --text | --updates | --out)
            case ${2:-} in "" | --*) fail "$1 needs a value" ;; esac
            printf -v "${1#--}" %s "$2"
            shift 2
            ;;
        *) fail "$1: unknown option; give --text FILE, --updates N or --out DIR" ;;
    esac
done
[ -z "$text" ] || { [ -f "$text" ] && [ -s "$text" ]; } || fail "--text $text: no such file, or it is empty; give another"
check_number --updates "$updates"
absolute text
check_out
make_environment
make_out
cd "$repository"

# Started again, it continues. A folder with another model is left alone.
library=$(python -c 'import sys, sysconfig; print(sys.version.split()[0], sysconfig.get_paths()["stdlib"])')
setting="$updates updates, $(if [ -n "$text" ]; then cksum <"$text"; else echo "$library"; fi)"
if [ "$(cat "$out/setting" 2>/dev/null)" != "$setting" ]; then
    [ ! -e "$out/checkpoints" ] || fail "--out $out: holds another model (other --text or --updates); give another folder"
    rm -f "$out/data.log" # it may be of another text
fi
printf '%s\n' "$setting" >"$out/setting"

echo "== Data: bytes of ${text:-the Python standard library}"
if [ ! -e "$out/data.log" ] || [ ! -e "$out/data/dict.txt" ]; then
    if [ -n "$text" ]; then
        parts=(--text "$text" --split 90,5,5)
    else
        # Of every 20 modules, one is for validation and one for testing.
        python - "$out/sources" <<'PY'
import pathlib, sys, sysconfig
library = pathlib.Path(sysconfig.get_paths()["stdlib"])
modules = [path for path in sorted(library.glob("*.py")) if path.stat().st_size]
splits = {"train": [], "valid": [], "test": []}
for i, path in enumerate(modules):
    splits[{18: "valid", 19: "test"}.get(i % 20, "train")].append(str(path))
folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
for split, paths in splits.items():
    (folder / split).write_text("".join(path + "\n" for path in paths))
PY
        parts=()
        for split in train valid test; do
            parts+=("--${split}pref")
            while IFS= read -r file; do parts+=("$file"); done <"$out/sources/$split"
        done
    fi
    sizes=$(python -m fb_fairseq preprocess-bytes "${parts[@]}" --destdir "$out/data")
    echo "$sizes" >"$out/data.log"
fi
cat "$out/data.log"

seed=1 cpu=--cpu extra=()
run_training "$out/checkpoints" "$updates" 150 "$out/data" --task streaming_lm \
    --arch feedback_transformer_lm --decoder-layers 2 --decoder-embed-dim 128 --decoder-ffn-embed-dim 512 \
    --decoder-attention-heads 4 --decoder-normalize-before --attention-span 64 \
    --tokens-per-sample 32 --batch-size 64 --valid-streams 32 --criterion lm_loss \
    --optimizer adam --lr 0.003 --lr-scheduler cosine --warmup-updates 100 --clip-norm 1.0 --keep-interval-updates 1

echo
echo "== Evaluation on the test split"
fairseq-eval-lm "$out/data" --user-dir fb_fairseq --task streaming_lm --gen-subset test --valid-streams 32 \
    --tokens-per-sample 32 --path "$out/checkpoints/checkpoint_best.pt" --cpu >"$out/eval.log" 2>&1 || {
    tail -n 20 "$out/eval.log"
    fail "evaluation failed; see $out/eval.log"
}
python -m fb_fairseq plot --curves "$out/checkpoints.log" --metric bpb --title "Feedback Transformer on bytes" \
    --layer-weights "$out/checkpoints/checkpoint_best.pt" --out "$out/quickstart.png"

echo "== Continuing the first bytes of the test text (top-10 sampling)"
python - "$out" 2>>"$out/eval.log" <<'PY' || {
import logging, sys
logging.disable(logging.INFO)
import torch
from fb_fairseq import byte_codec
from fb_fairseq.models.feedback_transformer_lm import FeedbackTransformerLanguageModel as Model
out = sys.argv[1]
model = Model.from_pretrained(out + "/checkpoints", "checkpoint_best.pt", out + "/data")
model.task.load_dataset("test")
dictionary, corpus = model.tgt_dict, model.task.dataset("test").corpus
prompt = byte_codec.decode(dictionary[i] for i in corpus[0:min(60, len(corpus))]).decode("utf-8", "replace")
torch.manual_seed(1)
text = model.sample(prompt, sampling=True, sampling_topk=10, max_len_b=260)
continuation = text[len(prompt):]
print(f"{prompt}\033[1m{continuation}\033[0m" if sys.stdout.isatty() else f"{prompt} >>> {continuation}")
PY
    tail -n 5 "$out/eval.log"
    fail "sampling failed; see $out/eval.log"
}
echo

# fairseq-eval-lm prints bits per token. Bits per byte are all bits, including those of </s>, divided by the bytes of
# the split, from data.log: "test: 8 documents, 311137 bytes, 311145 tokens".
awk -v bits="$(sed -n 's/.*Loss (base 2): \([0-9.]*\),.*/\1/p' "$out/eval.log")" -F '[ ,:]+' '
    /^test:/ { printf "Test split: %.3f bits per byte (%d bytes)\n", bits * $6 / $4, $4 }' "$out/data.log"
echo "It took $((SECONDS / 60)) min $((SECONDS % 60)) s. Model: $out/checkpoints/checkpoint_best.pt"
