#!/usr/bin/env bash
# Runs the test suite, set-up included:  bash tests/run.sh [--slow] [pytest's options]
# PYTHON=… and FB_FAIRSEQ_VENV=… choose the interpreter and the environment: see examples/environment.sh.
# FB_FAIRSEQ_DATA=DIR also runs the tests on real corpora.
set -euo pipefail
[ -z "${FB_FAIRSEQ_DATA:-}" ] || FB_FAIRSEQ_DATA=$(cd "$FB_FAIRSEQ_DATA" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. examples/environment.sh
make_environment
exec python -m pytest tests -q -rs --durations=10 "$@"
