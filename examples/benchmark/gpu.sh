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
while [ $# -gt 0 ]; do # paths are the caller's
    case $1 in
        --out) out=${2:?--out needs a value}; absolute out; arguments+=(--out "$out"); shift 2 ;;
        *) arguments+=("$1"); shift ;;
    esac
done
make_environment test
cd "$repository"
exec python examples/benchmark/gpu.py ${arguments[@]+"${arguments[@]}"}
