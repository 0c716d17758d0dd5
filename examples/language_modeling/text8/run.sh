#!/usr/bin/env bash
# text8 as letters:
#   bash examples/language_modeling/text8/run.sh text8.zip       # enwik8's setting (v3 Table 9), for GPUs
#   bash examples/language_modeling/text8/run.sh enwik9          # the same; text8 is extracted from enwik9
#   bash examples/language_modeling/text8/run.sh --small TEXT    # small models, for a CPU; any Wikipedia dump or text
# --print: print the commands without running them. Options and steps: ../README.md.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/../bytes.sh"

corpus=text8 full_models=feedback_transformer_lm_text8 prompt="in the beginning"

prepare() {
    local text=$2/text8 unpacked=$2/unpacked dump=no # DATA is text8 itself, or a Wikipedia dump
    given "$1" || fail "DATA $1: no such file; give text8 or text8.zip (http://mattmahoney.net/dc/text8.zip), or" \
        "enwik9"
    unpack "$1" "$unpacked" text8
    if [ $printing = no ]; then
        if LC_ALL=C grep -q "<text " "$unpacked"; then dump=yes; fi
    elif [ ! -f "$1" ]; then
        comment "(only if DATA is a Wikipedia dump; otherwise: mv, to the same file)"
        dump=yes
    elif LC_ALL=C grep -q "<text " "$1"; then
        dump=yes
    fi
    if [ $dump = yes ]; then
        run python examples/language_modeling/text8/clean_wikipedia.py "$unpacked" "$text"
        run rm "$unpacked"
    else
        run mv "$unpacked" "$text"
    fi
    [ $small = yes ] || check_file "$text" 100000000 3bea1919949baf155f99411df5fada7e text8
    run python -m fb_fairseq preprocess-bytes --text "$text" --split 90,5,5 --destdir "$2"
}

run_recipe "$@"
