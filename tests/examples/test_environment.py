"""examples/environment.sh: which releases are installed into an environment."""

import json
import os
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

# A python that tells its version, has torch, and writes down what pip is asked for.
PYTHON = """#!/bin/sh
case "$*" in
    *version_info*) echo 3.10 ;;
    "-I -m pip "*) echo "$@" >>"$RECORD" ;;
esac
"""
SETUP = 'set -euo pipefail; . "$1/examples/environment.sh"; make_environment test'


@pytest.fixture
def venv(tmp_path):
    python = tmp_path / "venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON)
    python.chmod(0o700)
    return tmp_path / "venv"


def make_environment(venv, **variables):
    """What pip was asked for, and the error."""
    record = venv / "record"
    record.write_text("")
    left_out = ("FB_FAIRSEQ_VERSIONS", "PYTHON")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    environment.update(PATH="/usr/bin:/bin", FB_FAIRSEQ_VENV=str(venv), RECORD=str(record), **variables)
    command = ["bash", "-c", SETUP, "recipe", str(REPOSITORY)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    return record.read_text(), done.stderr


def test_tested_releases_are_installed(venv):
    """In environments that the script has made; the option takes the newest, and both are told apart afterwards."""
    (venv / ".fb_fairseq").write_text("of an earlier commit")
    asked, _ = make_environment(venv)
    assert f"-c {REPOSITORY}/examples/constraints/python3.10.txt -e .[plot,translation,rl,test]" in asked
    assert make_environment(venv) == ("", ""), "all is there"
    asked, _ = make_environment(venv, FB_FAIRSEQ_VERSIONS="newest")
    assert " -e .[plot,translation,rl,test]" in asked and "constraints" not in asked
    assert make_environment(venv, FB_FAIRSEQ_VERSIONS="newest") == ("", "")
    assert "python3.10.txt" in make_environment(venv)[0]


def test_environments_of_others_keep_their_releases(venv):
    asked, _ = make_environment(venv)
    assert " -e .[plot,translation,rl,test]" in asked and "constraints" not in asked
    assert make_environment(venv) == make_environment(venv, FB_FAIRSEQ_VERSIONS="newest") == ("", "")


def test_the_editable_install_of_another_clone_stays(venv, tmp_path):
    """Nothing is installed then, and this is said; that of this clone is renewed."""
    look_here = f'"-I - "*) sed "1i import sys; sys.path.insert(0, \\"{tmp_path}\\")" | {sys.executable} -I - "$3" ;;'
    (venv / "bin/python").write_text(PYTHON.replace("esac", f"    {look_here}\nesac"))
    metadata = tmp_path / "fb_fairseq-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: fb_fairseq\nVersion: 0.1.0\n")
    for clone, replaced in ((tmp_path / "other clone", False), (REPOSITORY, True)):
        url = {"url": clone.as_uri(), "dir_info": {"editable": True}}
        (metadata / "direct_url.json").write_text(json.dumps(url))
        asked, error = make_environment(venv)
        assert (" -e ." in asked) == replaced and error == ""


def test_modules_in_the_current_folder_are_not_run(tmp_path):
    """A recipe may be started in a folder of a stranger, and goes to the repository later."""
    for name in ("platform", "sysconfig", "torch", "venv", "pip"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'it ran')!r}, 'w')")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to(sys.executable)
    script = f'. "$1/examples/environment.sh"; support_of {sys.executable}; version_of {sys.executable}; '
    script += 'FB_FAIRSEQ_TORCH=x install_torch "$2" true; PATH=/usr/bin:/bin set_installer "$2"; "${installer[@]}" -h'
    command = ["bash", "-c", script, "recipe", str(REPOSITORY), str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "{}.{}".format(*sys.version_info) in done.stdout.split()
    assert not (tmp_path / "it ran").exists()


TORCH = """
set -euo pipefail
. "$1/examples/environment.sh"
has_nvidia() { [ "$GPU" = yes ]; }
uname() { echo Linux; }
recorder() { echo "$@" >"$record"; [ -z "${FAILS:-}" ]; }
record=$2
install_torch "$3" recorder
"""


@pytest.mark.parametrize(
    "gpu,variables,index,message",
    [
        ("no", {}, "https://download.pytorch.org/whl/cpu", ""),
        ("no", {"FAILS": "yes"}, "https://download.pytorch.org/whl/cpu", "using the usual package index"),
        ("yes", {}, None, ""),
        ("yes", {"FB_FAIRSEQ_TORCH": "https://a.b/c"}, "https://a.b/c", ""),
        ("no", {"FB_FAIRSEQ_TORCH": ""}, None, ""),
    ],
)
def test_builds_of_pytorch_without_cuda(tmp_path, gpu, variables, index, message):
    """Where there is no NVIDIA GPU. Whatever cannot be installed from there comes from the usual index."""
    environment = {name: value for name, value in os.environ.items() if name != "FB_FAIRSEQ_TORCH"}
    record = tmp_path / "record"
    command = ["bash", "-c", TORCH, "recipe", str(REPOSITORY), str(record), str(tmp_path)]
    done = subprocess.run(command, env={**environment, "GPU": gpu, **variables}, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "" and message in done.stdout and bool(message) == bool(done.stdout)
    asked = record.read_text() if record.exists() else ""
    assert asked == (f"torch>=2.6 torchaudio --index-url {index}\n" if index else "")
