#!/usr/bin/env bash
# Lint the code and run the tests; the environment is set up on the first run:
#
#   bash tests/run.sh [--fast] [--slow] [pytest options]
#
#   --fast   unit tests only: skip the tests that run whole commands or take several seconds
#   --slow   also run the tests that take minutes
#
# PYTHON=… and FB_FAIRSEQ_VENV=… choose the interpreter and the environment (see examples/environment.sh).
# FB_FAIRSEQ_DATA=DIR adds the tests on real corpora. -n 0 (pytest-xdist) runs all tests in one process.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/../examples/environment.sh"
if [ -n "${FB_FAIRSEQ_DATA:-}" ]; then
    [ -d "$FB_FAIRSEQ_DATA" ] || fail "FB_FAIRSEQ_DATA=$FB_FAIRSEQ_DATA: no such folder; give the one of the corpora"
    absolute FB_FAIRSEQ_DATA
fi
make_environment
cd "$repository"

code="fb_fairseq tests examples setup.py"
ruff format --check $code || fail "some files are not formatted; run: ruff format $code"
ruff check $code || fail "ruff check reports the problems above; ruff check --fix fixes some of them"

# One process per core, at most four. Each takes whole files, because the tests of a file share the models they trained.
cores=$(python -c 'import os; print(min(4, os.cpu_count() or 1))')
exec python -m pytest tests -q -rs --durations=10 -n "$cores" --dist loadfile "$@"
