"""Run the recipes of examples/ as a user would."""

import os
import pathlib
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY


def recipe(folder, *arguments):
    """Run ``examples/<folder>/run.sh``, or a script of ``examples/``, from another working directory."""
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
    """Skip the tests of a module that imports this, unless recipes can reuse the environment that pytest runs in."""
    if not (pathlib.Path(sys.prefix) / ".fb_fairseq").exists():
        pytest.skip("this environment was not created by tests/run.sh")
