#!/usr/bin/env bash
# enwik8 as bytes:
#   bash examples/language_modeling/enwik8/run.sh enwik8.zip      # the setting of v3 Table 9, for GPUs
#   bash examples/language_modeling/enwik8/run.sh --small TEXT    # small models, for a CPU; any text will do
# --print: print the commands without running them. Options and steps: ../README.md.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/../bytes.sh"

corpus=enwik8 full_models=feedback_transformer_lm_enwik8 prompt="In the beginning" small_layers="2 4"

prepare() {
    local text=$2/enwik8
    given "$1" || fail "DATA $1: no such file; give enwik8 or enwik8.zip (http://mattmahoney.net/dc/enwik8.zip)"
    unpack "$1" "$text" enwik8
    [ $small = yes ] || check_file "$text" 100000000 a1fa5ffddb56f4953e226637dabbb36a enwik8
    run python -m fb_fairseq preprocess-bytes --text "$text" --split 90,5,5 --destdir "$2"
}

run_recipe "$@"
