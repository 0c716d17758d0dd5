# Sourced by the scripts. make_environment creates a Python environment with fb_fairseq and its dependencies, or reuses an
# existing one, and activates it; recipe runs a recipe in it.
#
#   PYTHON=/path/to/python   the interpreter to create it with (3.10 or 3.12)
#   FB_FAIRSEQ_VENV=DIR      where it is created, or the existing one to use (default: .venv in the repository)
#   FB_FAIRSEQ_TORCH=URL     package index to take PyTorch from (default on Linux without an NVIDIA GPU: PyTorch's CPU
#                            builds, 200 MB instead of several GB; otherwise, or if empty: the usual index)
#   FB_FAIRSEQ_VERSIONS=newest   install the newest releases that setup.py allows, instead of those that the tests last
#                            passed with (examples/constraints/; an environment of your own keeps what it has)

set -euo pipefail
unset CDPATH # with it, cd may go elsewhere, and prints where
repository=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd) repository=${repository%/*}

# fail MESSAGE…: print an error in one line, also if a file's name has several, and exit as after any mistake.
fail() {
    local message="error: $*" newline=$'\n'
    printf '%s\n' "${message//$newline/\\n}" >&2
    exit 2
}

[ "${0##*/}" != environment.sh ] || fail "$0: not a script of its own; run a recipe, such as bash examples/quickstart.sh"

# Every script has --help, wherever it stands among the options; after --, options are fairseq's.
for argument in "$@"; do
    case $argument in
        --) break ;;
        -h | --help) [ ! -f "$0" ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0; } ;;
    esac
done

# absolute NAME: make the path in the variable NAME absolute. (Commands take a path like -x for an option.)
absolute() {
    case ${!1} in "" | /*) ;; *) printf -v "$1" %s "$PWD/${!1}" ;; esac
}

# support_of PYTHON: print "ready" if there are fairseq wheels for this Python, "compile" if fairseq has to be compiled
# and Python's headers are installed, and nothing if this Python does not run or is not supported.
support_of() {
    "$1" -I - 2>/dev/null <<'PY' || true
import os, platform, sys, sysconfig
version = sys.version_info[:2]
wheels = platform.system() == "Linux" and platform.machine() == "x86_64"
headers = os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h"))
if version == (3, 12) and wheels:
    print("ready")
elif version in ((3, 10), (3, 12)) and headers:
    print("compile")
PY
}

# version_of PYTHON: print its version, such as 3.10, or nothing if it does not run.
version_of() {
    "$1" -I -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true
}

# find_python: set $found_python to $PYTHON or to the best interpreter on this machine.
find_python() {
    local compiler=no candidate support
    if command -v cc >/dev/null || command -v gcc >/dev/null || command -v clang >/dev/null; then compiler=yes; fi
    if [ -n "${PYTHON:-}" ]; then
        support=$(support_of "$PYTHON")
        [ -n "$support" ] || fail "PYTHON=$PYTHON: fairseq needs Python 3.10 or 3.12, with" \
            "its headers where there is no fairseq wheel"
        [ "$support" = ready ] || [ $compiler = yes ] || fail "PYTHON=$PYTHON: fairseq must be compiled for it, but" \
            "there is no C compiler; install one (Debian: apt install build-essential), or use Python 3.12"
        found_python=$PYTHON
        return
    fi
    # Candidates are run, not just looked up: pyenv's shims exist even for versions that are not installed.
    for version in 3.10 3.12; do
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
    fail "no suitable Python (3.10 or 3.12) found; install uv, or Python 3.12, or" \
        "Python 3.10 with its headers and a C compiler (Debian: apt install build-essential python3-dev), or set" \
        "PYTHON=/path/to/python"
}

# install_torch VENV INSTALLER…: install PyTorch from the index $FB_FAIRSEQ_TORCH, if it is not there yet. Where this
# fails, because the index cannot be reached or has no build for this Python, the usual index follows.
install_torch() {
    local venv=$1 index=${FB_FAIRSEQ_TORCH-} torch
    shift
    if [ -z "${FB_FAIRSEQ_TORCH+given}" ] && [ "$(uname -s)" = Linux ] && ! has_nvidia; then
        index=https://download.pytorch.org/whl/cpu
    fi
    [ -n "$index" ] && ! "$venv/bin/python" -I -c "import torch" 2>/dev/null || return 0
    torch=$(sed -n 's/^ *"\(torch>=[0-9.]*\)",$/\1/p' "$repository/setup.py")
    # (fairseq needs torchaudio, which has to be of the same build.)
    PIP_RETRIES=1 PIP_DEFAULT_TIMEOUT=15 UV_HTTP_TIMEOUT=15 "$@" "$torch" torchaudio --index-url "$index" >/dev/null 2>&1 ||
        echo "No PyTorch from $index; using the usual package index"
}

# set_installer VENV [OPTION…]: set $installer to the command that installs packages into an environment, with options.
set_installer() {
    local venv=$1
    shift
    if command -v uv >/dev/null; then
        # Like pip, compile to bytecode: if PYTHONDONTWRITEBYTECODE is set, every command would spend 3 to 4 s on
        # compiling torch.
        installer=(uv pip install --quiet --compile-bytecode --python "$venv/bin/python" "$@")
    else
        installer=("$venv/bin/python" -I -m pip install --quiet --disable-pip-version-check "$@")
    fi
}

# other_clone VENV: print the clone whose editable install an environment has, if that is another one than this.
other_clone() {
    "$1/bin/python" -I - "$repository" 2>/dev/null <<'PY' || true
import importlib.metadata, json, os, sys, urllib.parse, urllib.request
url = json.loads(importlib.metadata.distribution("fb_fairseq").read_text("direct_url.json"))
clone = urllib.request.url2pathname(urllib.parse.urlparse(url["url"]).path)
if url.get("dir_info", {}).get("editable") and os.path.realpath(clone) != os.path.realpath(sys.argv[1]):
    print(clone)
PY
}

# has_nvidia: whether this machine has an NVIDIA GPU with a driver.
has_nvidia() {
    [ -e /proc/driver/nvidia/version ] || [ -e /dev/nvidiactl ] || [ -e /dev/dxg ] || command -v nvidia-smi >/dev/null
}

# make_environment [EXTRA]: create or update the environment if needed, with the packages of a further extra of setup.py
# if one is named, and activate it.
make_environment() {
    local venv=${FB_FAIRSEQ_VENV:-$repository/.venv} extras=plot,translation,rl${1:+,$1} stamp installed version
    local versions=${FB_FAIRSEQ_VERSIONS:-tested} created=no constraints='' hint='' other
    case $versions in
        tested | newest) ;;
        *) fail "FB_FAIRSEQ_VERSIONS=$versions: unknown; give tested or newest" ;;
    esac
    absolute venv
    case $venv in *:*) fail "FB_FAIRSEQ_VENV=$venv: PATH is split at \":\"; choose a folder without it" ;; esac
    case $repository in *:*) fail "$repository: PYTHONPATH is split at \":\"; move it to a folder without" ;; esac
    [ ! -e "$venv" ] || [ -d "$venv" ] || fail "FB_FAIRSEQ_VENV=$venv: not a folder; choose a folder, or a new name"
    if [ ! -x "$venv/bin/python" ]; then
        created=yes
        # pip writes this name into shell code, in double quotes.
        case $venv in
            *[\"\$\`\\$'\n']*) fail "$venv: set FB_FAIRSEQ_VENV to a folder without \", \$, \`, \\ or line breaks" ;;
        esac
        find_python
        echo "Creating $venv with $found_python"
        if command -v uv >/dev/null; then
            uv venv --quiet --python "$found_python" "$venv" || fail "uv could not create $venv"
        else
            "$found_python" -I -m venv "$venv" || fail "could not create $venv (Debian: apt install python3-venv)"
        fi
    fi
    version=$(version_of "$venv/bin/python")
    case $version in
        "" | 3.10 | 3.12) ;;
        *)
            fail "$venv has Python $version, on which fairseq does not run; it needs Python 3.10 or 3.12: set" \
                "FB_FAIRSEQ_VENV=DIR to another folder, or delete this one"
            ;;
    esac
    if [ -n "${PYTHON:-}" ] && [ "$(version_of "$PYTHON")" != "$version" ]; then
        fail "PYTHON=$PYTHON is Python $(version_of "$PYTHON"), but $venv has Python $version; set" \
            "FB_FAIRSEQ_VENV=DIR to another folder, or delete this one"
    fi
    installed=$(cat "$venv/.fb_fairseq" 2>/dev/null) || installed=
    case $created$installed in no | nokept*) versions=kept ;; esac # an environment that something else has made
    if [ "$versions" = tested ]; then
        constraints=$repository/examples/constraints/python$version.txt
        if [ -f "$constraints" ]; then hint="; FB_FAIRSEQ_VERSIONS=newest tries other releases"; else constraints=; fi
    fi
    stamp="$versions $(cat -- "$repository/setup.py" ${constraints:+"$constraints"} | cksum)"
    other=$(other_clone "$venv")
    if [ "$installed" = "$stamp $extras" ] || [ "${installed%,*}" = "$stamp $extras" ]; then
        :
    elif [ -n "$other" ]; then
        echo "Nothing is installed into $venv, which has the editable install of $other; this clone is in PYTHONPATH"
    else
        echo "Installing fb_fairseq and its dependencies into $venv (a few minutes; with CUDA's libraries several GB)"
        set_installer "$venv" ${constraints:+-c "$constraints"}
        # fairseq 0.12.2 needs omegaconf 2.0, whose metadata pip 24.1 and later reject.
        [ "${installer[0]}" = uv ] || "${installer[@]}" "pip<24.1" || fail "installation failed"
        install_torch "$venv" "${installer[@]}"
        (cd -- "$repository" && "${installer[@]}" -e ".[$extras]") || fail "installation failed$hint"
        echo "$stamp $extras" >"$venv/.fb_fairseq"
    fi
    export PATH="$venv/bin:$PATH"
    # The environment may have been created by another clone: make sure that this clone's package is imported.
    export PYTHONPATH="$repository${PYTHONPATH:+:$PYTHONPATH}"
    # fairseq raises these warnings before it loads any plugin.
    export PYTHONWARNINGS="${PYTHONWARNINGS:-ignore::FutureWarning,ignore::SyntaxWarning,ignore::DeprecationWarning}"
}

# recipe NAME ARGUMENTS…: run python -m fb_fairseq recipe in the environment, which is created if needed.
recipe() {
    local python=${FB_FAIRSEQ_VENV:-$repository/.venv}/bin/python checked=no word
    absolute python
    export FB_FAIRSEQ_VENV=${python%/bin/python} FB_FAIRSEQ_CALLER=$PWD
    export PYTHONPATH="$repository${PYTHONPATH:+:$PYTHONPATH}"
    # Any Python reads the command line and prints the commands: nothing is installed for that, nor before a mistake.
    if [ -x "$python" ]; then checked=yes; else python=python3; fi
    cd "$repository" # Python's modules are not those of the caller's folder
    for word in "$@"; do
        case $word in
            --) break ;;
            --print) exec "$python" -m fb_fairseq recipe "$@" ;;
        esac
    done
    if [ $checked = no ] && python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
        python3 -m fb_fairseq recipe "$1" --print "${@:2}" >/dev/null || exit
    fi
    cd "$FB_FAIRSEQ_CALLER"
    make_environment
    cd "$repository"
    exec python -m fb_fairseq recipe "$@"
}
