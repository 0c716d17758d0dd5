#!/usr/bin/env bash
# Checks and measures everything on a GPU, and writes one page about it:
#
#   bash examples/benchmark/gpu.sh [--minutes N] [--out DIR] [--cpu]
#
#   --minutes N   stop after this time (default: 8)
#   --out DIR     folder for the page, the JSON lines and the logs (default: runs/gpu)
#   --cpu         tiny sizes on the CPU, to try the script itself (a minute or two)
#
# The page says what ran, what was skipped for lack of time, and every fallback that was taken.
# PYTHON=… and FB_FAIRSEQ_VENV=… choose the interpreter and the environment (see ../environment.sh).
# Where torch and Triton are installed already, python examples/benchmark/gpu.py does the same in that environment.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/../environment.sh"
arguments=()
while [ $# -gt 0 ]; do # before anything is installed
    case $1 in
        --out) out=${2:-}; [ -n "$out" ] || fail "--out needs a value"
            absolute out; arguments+=(--out "$out"); shift 2 ;; # paths are the caller's
        --minutes) [[ ${2:-} =~ ^[0-9]+(\.[0-9]+)?$ ]] || fail "--minutes ${2:-}: give a number"
            arguments+=("$1" "$2"); shift 2 ;;
        --cpu) arguments+=("$1"); shift ;;
        -h | --help) sed -n '2,/^set /{s/^# \{0,1\}//p}' "$0"; exit ;;
        *) fail "$1: unknown option; give --minutes N, --out DIR or --cpu" ;;
    esac
done
make_environment test
cd "$repository"
exec python examples/benchmark/gpu.py ${arguments[@]+"${arguments[@]}"}
