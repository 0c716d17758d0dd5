#!/usr/bin/env bash
# Runs the test suite, set-up included:  bash tests/run.sh [--slow] [pytest's options]
# PYTHON=… and FB_FAIRSEQ_VENV=… choose the interpreter and the environment: see examples/environment.sh.
# (pytest-xdist: -n 0 runs all in one process.)  FB_FAIRSEQ_DATA=DIR also runs the tests on real corpora.
set -euo pipefail
[ -z "${FB_FAIRSEQ_DATA:-}" ] || FB_FAIRSEQ_DATA=$(cd "$FB_FAIRSEQ_DATA" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. examples/environment.sh
make_environment
# A process a core, up to four; each takes whole files, whose tests share what they trained.
cores=$(python -c 'import os; print(min(4, os.cpu_count() or 1))')
exec python -m pytest tests -q -rs --durations=10 -n "$cores" --dist loadfile "$@"
