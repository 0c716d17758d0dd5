# Sourced by quickstart.sh, the recipes and tests/run.sh: makes a Python environment, or reuses it, and activates it.
#
#   PYTHON=/path/to/python   make it with this interpreter (3.8, 3.9, 3.10 or 3.12)
#   FB_FAIRSEQ_VENV=DIR      make it there, or reuse the one there (default: .venv in the repository)

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

fail() {
    echo "error: $*" >&2
    exit 1
}

# Prints "ready" for a Python that fairseq comes ready-made for, "compile" where fairseq has to be compiled (and can
# be, as far as Python's headers go); nothing for a Python that does not run or is not supported.
support_of() {
    "$1" - 2>/dev/null <<'PY' || true
import os, platform, sys, sysconfig
version = sys.version_info[:2]
wheels = platform.system() == "Linux" and platform.machine() == "x86_64"
headers = os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h"))
if version in ((3, 8), (3, 12)) and wheels:
    print("ready")
elif version in ((3, 8), (3, 9), (3, 10), (3, 12)) and headers:
    print("compile")
PY
}

version_of() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true
}

find_python() {
    local compiler=no candidate support
    if command -v cc >/dev/null || command -v gcc >/dev/null || command -v clang >/dev/null; then compiler=yes; fi
    if [ -n "${PYTHON:-}" ]; then
        support=$(support_of "$PYTHON")
        [ -n "$support" ] || fail "PYTHON=$PYTHON: give a Python 3.8, 3.9, 3.10 or 3.12 (with its headers where" \
            "fairseq must be compiled)"
        [ "$support" = ready ] || [ $compiler = yes ] || fail "PYTHON=$PYTHON: fairseq must be compiled for it and" \
            "there is no C compiler; install one (Debian: apt install build-essential), or use Python 3.12 or 3.8"
        found_python=$PYTHON
        return
    fi
    # Candidates are run, not just looked for: a pyenv shim exists and fails.
    for version in 3.10 3.9 3.8 3.12; do
        for candidate in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/$version.*/bin/python; do
            support=$(support_of "$candidate")
            if [ "$support" = ready ] || { [ "$support" = compile ] && [ $compiler = yes ]; }; then
                found_python=$candidate
                return
            fi
        done
    done
    if command -v uv >/dev/null; then
        # uv brings its own Python, with headers.
        if [ $compiler = yes ]; then found_python=3.10; else found_python=3.12; fi
        return
    fi
    fail "no Python 3.8, 3.9, 3.10 or 3.12 with which fairseq can be installed was found; install Python 3.12, or" \
        "3.10 with its headers and a C compiler (Debian: apt install build-essential python3-dev), or uv; or name" \
        "one with PYTHON=/path/to/python"
}

make_environment() {
    local venv=${FB_FAIRSEQ_VENV:-$repository/.venv} stamp
    stamp=$(cksum <"$repository/setup.py")
    if [ ! -x "$venv/bin/python" ]; then
        find_python
        echo "Making $venv with $found_python"
        if command -v uv >/dev/null; then
            uv venv --quiet --python "$found_python" "$venv" || fail "uv could not make $venv"
        else
            "$found_python" -m venv "$venv" || fail "$venv could not be made (Debian: apt install python3-venv)"
        fi
    fi
    if [ -n "${PYTHON:-}" ] && [ "$(version_of "$PYTHON")" != "$(version_of "$venv/bin/python")" ]; then
        fail "PYTHON=$PYTHON is Python $(version_of "$PYTHON"), but $venv was made with" \
            "$(version_of "$venv/bin/python"); name another folder with FB_FAIRSEQ_VENV=DIR, or remove that one"
    fi
    if [ "$(cat "$venv/.fb_fairseq" 2>/dev/null)" != "$stamp" ]; then
        echo "Installing fb_fairseq and what it needs into $venv (several GB with CUDA's libraries, some minutes)"
        if command -v uv >/dev/null; then
            # (pip compiles too: where PYTHONDONTWRITEBYTECODE is set, each command would compile torch anew, 3 to 4 s.)
            uv pip install --quiet --compile-bytecode --python "$venv/bin/python" \
                -e "$repository[plot,translation,rl,test]" || fail "installation failed"
        else
            # fairseq 0.12.2 needs omegaconf 2.0, whose metadata newer versions of pip refuse.
            "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "pip<24.1" &&
                "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -e "$repository[plot,translation,rl,test]" ||
                fail "installation failed"
        fi
        echo "$stamp" >"$venv/.fb_fairseq"
    fi
    export PATH="$venv/bin:$PATH"
    # An environment may have been made for another clone: this one's package comes first.
    export PYTHONPATH="$repository${PYTHONPATH:+:$PYTHONPATH}"
    # fairseq itself calls these before any plugin is loaded.
    export PYTHONWARNINGS="${PYTHONWARNINGS:-ignore::FutureWarning,ignore::SyntaxWarning,ignore::DeprecationWarning}"
}
