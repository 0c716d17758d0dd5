"""The scripts of examples/: they find an environment, and run ``fb-fairseq recipe`` there."""

import os
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY
from tests.papers.steps.printed import commands as commands_in
from tests.papers.steps.printed import printed


def script(name, *arguments, **variables):
    """Run a script of examples/ from elsewhere; ``variables`` are of its environment."""
    environment = {**os.environ, "FB_FAIRSEQ_VENV": sys.prefix, **variables}
    words = ["bash", str(REPOSITORY / "examples" / name), *map(str, arguments)]
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300, cwd="/")


def test_scripts_are_thin_doors():
    """They print what the command does; without an environment, too."""
    steps = printed("copy").count("\n# [")
    assert steps
    for venv in (sys.prefix, "/nowhere"):
        shown = script("synthetic_tasks/copy.sh", "--print", FB_FAIRSEQ_VENV=venv).stdout
        assert shown.count("\n# [") == steps
    assert commands_in(script("recipe.sh", "maze", "--print").stdout, "python -m fb_fairseq rl train")
    assert "[--small|--full]" in script("synthetic_tasks/copy.sh", "--help").stdout
    done = script("recipe.sh")
    assert done.returncode and "the recipe is missing" in done.stderr


@pytest.mark.parametrize(
    "environment,message",
    [
        ({"FB_FAIRSEQ_VENV": "{}/a:b"}, 'a:b: PATH is split at ":"'),
        ({"FB_FAIRSEQ_VENV": "{}/$(exit)"}, "$(exit): set FB_FAIRSEQ_VENV to a folder without"),
        ({"PYTHON": "/bin/false", "FB_FAIRSEQ_VENV": "{}/venv"}, "error: PYTHON=/bin/false"),
        ({"FB_FAIRSEQ_VENV": "{}/3.13"}, "/3.13 has Python 3.13, on which fairseq does not"),
    ],
)
def test_bad_environments(tmp_path, environment, message):
    python = tmp_path / "3.13/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho 3.13\n")
    python.chmod(0o755)
    variables = {key: value.format(tmp_path) for key, value in environment.items()}
    done = script("quickstart.sh", "--out", tmp_path / "out", **variables)
    (line,) = done.stderr.splitlines()
    assert done.returncode != 0 and message in line
    assert [path.name for path in tmp_path.iterdir()] == ["3.13"]
