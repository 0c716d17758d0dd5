"""``fb-fairseq``: the list of commands, their names, and that each can be run."""

import json
import os
import re
import subprocess
import sys

import pytest

import fb_fairseq
from fb_fairseq.commands import COMMANDS, FAIRSEQ_COMMANDS, SHORT_NAMES, main
from fb_fairseq.commands.fairseq_commands import PACKAGE, with_hydra_user_dir, with_user_dir
from tests.conftest import REPOSITORY

# Argument: commands, each as a list of words. Prints the status, the output and the errors of each.
WITHOUT_FAIRSEQ = """
import contextlib, io, json, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("fairseq", "omegaconf", "hydra"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Refuse())
from fb_fairseq.commands import main
for argv in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as errors:
        try:
            status = main(argv)
        except SystemExit as stop:
            status = stop.code
    print(json.dumps([status, out.getvalue(), errors.getvalue()]))
"""


def run(*arguments, stdout=subprocess.PIPE):
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=REPOSITORY, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=120)


@pytest.mark.parametrize("arguments,status", [([], 2), (["--help"], 0)])
def test_list_of_commands(capsys, arguments, status):
    assert main(arguments) == status
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "usage: fb-fairseq <command> [options]"
    for name, (_, text) in COMMANDS.items():
        assert any(line.split() == [name, *text.split()] for line in lines)
    assert f"  {', '.join(FAIRSEQ_COMMANDS)}" in lines
    names = {*FAIRSEQ_COMMANDS, *(f"fairseq-{name}" for name in SHORT_NAMES)}
    assert not COMMANDS.keys() & names, "they stand beside ours"


def test_version(capsys):
    assert main(["--version"]) == 0 and capsys.readouterr().out == f"fb_fairseq {fb_fairseq.__version__}\n"


@pytest.mark.parametrize(
    "name,hint",
    [
        ("evaluate-label", "did you mean evaluate-labels?"),
        ("trian", "did you mean train?"),
        ("fairseq-fairseq-generate", "did you mean fairseq-generate?"),
        ("xyz", f"choose from {', '.join([*COMMANDS, *FAIRSEQ_COMMANDS])}"),
    ],
)
def test_unknown_command(capsys, name, hint):
    assert main([name, "--out", "x"]) == 2
    assert capsys.readouterr().err.splitlines() == [f"fb-fairseq: error: unknown command '{name}'; {hint}"]


@pytest.mark.parametrize(
    "given,passed_on",
    [
        (["data", "--lr", "0.1"], ["--user-dir", PACKAGE, "data", "--lr", "0.1"]),
        (["data", "--user-dir", "fb_fairseq"], ["data", "--user-dir", PACKAGE]),
        (["--user-dir=fb_fairseq", "fb_fairseq"], [f"--user-dir={PACKAGE}", "fb_fairseq"]),
        (["data", "--user-dir", "mine"], ["data", "--user-dir", "mine"]),
    ],
)
def test_user_dir(given, passed_on):
    assert with_user_dir(given) == passed_on


@pytest.mark.parametrize(
    "given,passed_on",
    [
        (["--config-dir", "x"], ["--config-dir", "x", f"common.user_dir={PACKAGE}"]),
        (["--config-name=x", "a.b=y", "-m"], ["--config-name=x", f"common.user_dir={PACKAGE}", "a.b=y", "-m"]),
        (["common.user_dir=fb_fairseq"], [f"common.user_dir={PACKAGE}"]),
        (["common.user_dir=mine"], ["common.user_dir=mine"]),
        (["a.b=y", "common.user_dir=mine"], ["a.b=y", "common.user_dir=mine"]),
    ],
)
def test_user_dir_of_hydra(given, passed_on):
    assert with_hydra_user_dir(given) == passed_on


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_command(capsys, name):
    """Each command runs by its name with hyphens or underscores, and calls itself by the canonical name."""
    help_texts = []
    for spelling in (name, name.replace("-", "_")):
        with pytest.raises(SystemExit) as exit:
            main([spelling, "--help"])
        assert exit.value.code == 0
        help_texts.append(capsys.readouterr().out)
    assert help_texts[0] == help_texts[1]
    assert help_texts[0].startswith(f"usage: fb-fairseq {name} ")


def test_the_exit_status_of_the_module():
    done = run("-m", "fb_fairseq")
    assert done.returncode == 2 and done.stdout.startswith("usage: fb-fairseq <command>")


@pytest.mark.not_fast
def test_without_fairseq(tmp_path):
    """Some commands run, the others end with one line."""
    run_alone = "benchmark", "rl", "synthetic-tasks", "average-checkpoints", "score", "plot"
    helps = [[name, "--help"] for name in run_alone]
    refused = [["generate", "--path", "x.pt"], ["evaluate-labels", str(tmp_path), "--path", "x.pt"]]
    refused += [["quickstart", "--out", str(tmp_path / "out")], ["recipe", "copy", "--out", str(tmp_path / "out")]]
    destination = ["--destdir", str(tmp_path / "data")]
    refused += [["preprocess-bytes", "--text", __file__, "--split", "90,5,5", *destination], ["train", str(tmp_path)]]
    done = run("-c", WITHOUT_FAIRSEQ, json.dumps(helps + refused))
    assert done.returncode == 0, done.stderr
    ended = [json.loads(line) for line in done.stdout.splitlines()]
    for (name, *_), (status, out, errors) in zip(helps, ended):
        assert status == 0 and out.startswith(f"usage: fb-fairseq {name} "), errors
    for (name, *_), (status, _, errors) in zip(refused, ended[len(helps) :]):
        (line,) = errors.splitlines()
        assert status == 2 and re.match(f"fb-fairseq {name}( copy)?: error: needs fairseq, which ", line)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "version,message",
    [
        ((3, 10), "needs fairseq, which is not installed; pip install fairseq"),
        ((3, 12), "needs fairseq, which is not installed; pip install fairseq-fixed"),
        ((3, 13), "needs fairseq, which does not run on Python 3.13; use Python 3.10 or 3.12"),
    ],
)
def test_what_to_do_where_fairseq_is_missing(version, message, capsys, monkeypatch):
    """Also if a command imports it before it reads its options."""

    def import_module(name):
        raise ModuleNotFoundError("No module named 'fairseq'", name="fairseq")

    monkeypatch.setattr("sys.version_info", version)
    monkeypatch.setattr("fb_fairseq.commands.importlib.import_module", import_module)
    assert main(["evaluate_labels"]) == 2
    assert capsys.readouterr().err == f"fb-fairseq evaluate-labels: error: {message}\n"


@pytest.mark.not_fast
def test_output_that_nobody_reads():
    """Behind ``| head`` nothing more is said."""
    command = [sys.executable, "-m", "fb_fairseq"]
    process = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.close()
    assert process.stderr.read() == "" and process.wait() == 141


@pytest.mark.not_fast
def test_output_that_cannot_be_written():
    with open("/dev/full", "w") as full:
        done = run("-m", "fb_fairseq", "--help", stdout=full)
    assert (done.returncode, done.stderr) == (2, "fb-fairseq --help: error: No space left on device\n")


@pytest.mark.not_fast
@pytest.mark.parametrize(
    "variables,written",
    [
        ({"PYTHONIOENCODING": "ascii"}, b"# ?"),
        ({"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}, b"# ?"),
        ({"PYTHONIOENCODING": "utf-8"}, "# é".encode()),
    ],
)
def test_characters_that_the_terminal_does_not_have(variables, written):
    command = [sys.executable, "-m", "fb_fairseq", "generate", "--prompt", r"# \xc3\xa9", "--length", "1", "--cpu"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, env={**os.environ, **variables}, timeout=120)
    assert done.returncode == 0 and done.stdout.startswith(written), done.stderr
