#!/usr/bin/env bash
# Checks and measures everything on a GPU, and writes one page about it, with every fallback that was taken:
#   bash examples/benchmark/gpu.sh [--minutes N] [--out DIR] [--cpu]
#   bash examples/benchmark/gpu.sh --train walk|A5|S5 [--minutes N] [--out DIR] [--cpu]    # one experiment instead
#   bash examples/benchmark/gpu.sh --train char-PTB --ptb DIR [--minutes N] [--out DIR] [--cpu]
# --train: at the papers' size, two thirds of the time for the Feedback Transformer and then the Transformer; the same
# command goes on. --minutes: for all of it (default: 8); --out: for the page, the JSON lines and the logs (default:
# runs/gpu); --cpu: tiny sizes on the CPU, to try the script. PYTHON=…, FB_FAIRSEQ_VENV=…: see ../environment.sh. Where
# torch and Triton are installed already, python examples/benchmark/gpu.py does the same in that environment.
. "$(dirname -- "${BASH_SOURCE[0]}")/../environment.sh"
arguments=()
while [ $# -gt 0 ]; do # before anything is installed
    case $1 in
        --cpu) arguments+=("$1"); shift; continue ;;
        --out | --ptb) value=${2:-}; absolute value ;; # paths are the caller's
        --train) value=${2:-} ;;
        --minutes) [[ ${2:-} =~ ^[0-9]+(\.[0-9]+)?$ ]] || fail "--minutes ${2:-}: give a number"; value=$2 ;;
        *) fail "$1: unknown option; --help lists them" ;;
    esac
    [ -n "$value" ] || fail "$1 needs a value"
    arguments+=("$1" "$value"); shift 2
done
make_environment test; cd "$repository"
exec python examples/benchmark/gpu.py ${arguments[@]+"${arguments[@]}"}
