"""Runs the recipes of examples/ as a user would."""

import os
import pathlib
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY


def recipe(folder, *arguments):
    """examples/<folder>/run.sh, or a script itself, from another folder."""
    script = REPOSITORY / "examples" / folder
    return subprocess.run(
        ["bash", str(script if script.suffix else script / "run.sh"), *map(str, arguments)],
        env={**os.environ, "FB_FAIRSEQ_VENV": sys.prefix, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        cwd="/",
    )


@pytest.fixture(autouse=True)
def environment():
    if not (pathlib.Path(sys.prefix) / ".fb_fairseq").exists():
        pytest.skip("this environment was not made by tests/run.sh")
