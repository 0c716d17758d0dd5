#!/usr/bin/env bash
# text8, letter by letter, in the setting of enwik8 (v3 Table 9); on a CPU, small, on any Wikipedia dump or text:
#   bash examples/language_modeling/text8/run.sh text8.zip        (or enwik9, from which text8 is made)
#   bash examples/language_modeling/text8/run.sh --small DUMP
# Options and steps: ../README.md.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh"
. "$repository/examples/language_modeling/bytes.sh"

corpus=text8 full_models=feedback_transformer_lm_text8 prompt="in the beginning"

prepare() {
    local text=$out/text8 given=$out/given
    [ -f "$1" ] || fail "DATA $1: no such file; give text8 or text8.zip (http://mattmahoney.net/dc/text8.zip), or enwik9"
    unpack "$1" "$given" text8
    if LC_ALL=C grep -q "<text " "$given"; then
        python examples/language_modeling/text8/clean_wikipedia.py "$given" "$text"
        rm "$given"
    else
        mv "$given" "$text"
    fi
    [ $small = yes ] || check "$text" 100000000 3bea1919949baf155f99411df5fada7e text8
    python -m fb_fairseq preprocess-bytes --text "$text" --split 90,5,5 --destdir "$2"
}

run_recipe "$@"
