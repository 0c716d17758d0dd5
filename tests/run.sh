#!/usr/bin/env bash
# Lint the code and run the tests; the environment is set up on the first run:
#
#   bash tests/run.sh [--fast | --ci | --slow] [pytest options]
#   PYTHON=python3.13 bash tests/run.sh --without-fairseq [--fast] [pytest options]
#
#   --fast   unit tests only: skip the tests that run whole commands or take several seconds
#   --ci     also run what CI runs: the programs of README and docs, recipes, benchmarks, and variants
#   --slow   all of that, and the tests that take minutes
#   --without-fairseq   (first) no lint, and only the tests that need no fairseq, on a Python that fairseq does not run
#            on: 3.11, 3.13 or newer. torch and transformers are installed into .venv-VERSION.
#
# PYTHON=…, FB_FAIRSEQ_VENV=… and FB_FAIRSEQ_VERSIONS=newest choose the interpreter, the environment and the releases of
# its packages (see examples/environment.sh).
# FB_FAIRSEQ_DATA=DIR adds the tests on real corpora. -n 0 (pytest-xdist) runs all tests in one process.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/../examples/environment.sh"
if [ -n "${FB_FAIRSEQ_DATA:-}" ]; then
    [ -d "$FB_FAIRSEQ_DATA" ] || fail "FB_FAIRSEQ_DATA=$FB_FAIRSEQ_DATA: no such folder; give the one of the corpora"
    absolute FB_FAIRSEQ_DATA
fi

if [ "${1:-}" = --without-fairseq ]; then
    shift
    cd "$repository"
    PYTHON=${PYTHON:-python3}
    version=$(version_of "$PYTHON")
    [ -n "$version" ] || fail "PYTHON=$PYTHON: no such interpreter; give another one"
    case $version in
        3.11 | 3.1[3-9]) ;;
        *) fail "PYTHON=$PYTHON: --without-fairseq is for Python 3.11, 3.13 or newer; give one, or leave it out" ;;
    esac
    venv=${FB_FAIRSEQ_VENV:-$repository/.venv-$version}
    absolute venv
    [ ! -x "$venv/bin/python" ] || [ "$(version_of "$venv/bin/python")" = "$version" ] ||
        fail "PYTHON=$PYTHON is Python $version, but $venv has another one; set FB_FAIRSEQ_VENV=DIR to another folder"
    if [ "$(cat "$venv/.fb_fairseq" 2>/dev/null)" != "$(cksum <setup.py)" ]; then
        echo "Installing torch, transformers and the tests' packages into $venv"
        [ -x "$venv/bin/python" ] || "$PYTHON" -I -m venv "$venv" || fail "could not create $venv"
        set_installer "$venv"
        install_torch "$venv" "${installer[@]}"
        "${installer[@]}" -e ".[rl,transformers,test]" subword-nmt || fail "installation failed"
        cksum <setup.py >"$venv/.fb_fairseq"
    fi
    export PYTHONPATH="$repository${PYTHONPATH:+:$PYTHONPATH}"
    exec "$venv/bin/python" -m pytest tests/{ops,modules,streams,transformers} tests/test_{byte_codec,files,literals,meaning,pretrained}.py \
        tests/papers/{rl,state_tracking,toy_tasks} --ignore tests/streams/fairseq \
        -q -rs --durations=10 -n 2 --dist loadfile "$@"
fi

make_environment test
cd "$repository"

# The oldest transformers beside the one of the environment, for tests/transformers/test_versions.py.
venv=$(python -c 'import sys; print(sys.prefix)')
oldest=$venv/oldest-transformers requirements=tests/oldest_transformers.txt
if ! cmp -s "$requirements" "$oldest/requirements.txt" && python -c 'import transformers' 2>/dev/null; then
    rm -rf "$oldest"
    set_installer "$venv" --no-deps --target "$oldest"
    if "${installer[@]}" -r "$requirements" 2>/dev/null; then
        cp "$requirements" "$oldest/requirements.txt"
    else
        echo "No oldest transformers from the package index: its test is skipped"
    fi
fi

code="fb_fairseq tests examples setup.py"
ruff format --check $code || fail "some files are not formatted; run: ruff format $code"
ruff check $code || fail "ruff check reports the problems above; ruff check --fix fixes some of them"

# One process per core and one more, as some wait; at most four. Each takes whole files, because the tests of a file
# share the models they trained, in the order of tests/conftest.py.
cores=$(python -c 'import os; print(min(4, (os.cpu_count() or 1) + 1))')
exec python -m pytest tests -q -rs --durations=10 -n "$cores" --dist loadfile --no-loadscope-reorder "$@"
