"""Run the recipes of examples/ as a user would."""

import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

EXAMPLES = REPOSITORY / "examples"
# Scripts to run, and parts of scripts (which are sourced, and do not begin with #!), relative to examples/.
SCRIPTS, PARTS = [], []
for path in sorted(EXAMPLES.glob("**/*.sh")):
    (SCRIPTS if path.read_text().startswith("#!") else PARTS).append(str(path.relative_to(EXAMPLES)))


def recipe(folder, *arguments):
    """Run ``examples/<folder>/run.sh``, or a script of ``examples/``, from another working directory."""
    script = EXAMPLES / folder
    return subprocess.run(
        ["bash", str(script if script.suffix else script / "run.sh"), *map(str, arguments)],
        env={**os.environ, "FB_FAIRSEQ_VENV": sys.prefix, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        cwd="/",
    )


def printed_commands(text, start=""):
    """The words of each printed command that begins so, up to ``2>&1``. (Their names must not hold line breaks.)"""
    lines = re.sub(r"\\\n +", "", text).splitlines()
    commands = [shlex.split(line) for line in lines if line.startswith(start) and line and line[0] != "#"]
    return [command[: (command + ["2>&1"]).index("2>&1")] for command in commands]


def assert_prints_training(script, log, *arguments, repository=REPOSITORY):
    """The training that a script prints is the one that it wrote into its log, which has no paths relative to it."""
    done = recipe(repository / "examples" / script, *arguments, "--print")
    assert done.returncode == 0, done.stderr
    (trained,) = printed_commands(done.stdout, "fairseq-train ")
    line = log.read_text().splitlines()[0]
    words = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, text=True).stdout.split("\0")
    assert [word.replace(f"{repository}/", "") for word in words[:-1]] == trained


@pytest.fixture(autouse=True)
def environment():
    """Skip the tests of a module that imports this, unless recipes can reuse the environment that pytest runs in."""
    if not (pathlib.Path(sys.prefix) / ".fb_fairseq").exists():
        pytest.skip("this environment was not created by tests/run.sh")
