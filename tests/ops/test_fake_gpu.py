"""The GPU path without a GPU: runs ``fake_gpu.py`` in a process of its own, whose torch library it changes."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

from tests.ops.fake_gpu_device import reason_not_to_run

TESTS = pathlib.Path(__file__).with_name("fake_gpu.py")


def run(**environment) -> None:
    reason = reason_not_to_run()
    if reason:
        pytest.skip(reason)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(TESTS)]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout or importlib.util.find_spec("fairseq") is None


@pytest.mark.not_fast
def test_on_a_fake_gpu():
    run()


@pytest.mark.slow
def test_all_cases():
    run(ALL_CASES="1")
