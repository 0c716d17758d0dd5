"""The GPU path without a GPU: runs ``fake_gpu.py`` in a process of its own, whose torch library it changes."""

import importlib.util
import pathlib

import pytest

from tests.ops.fake_gpu_device import reason_not_to_run
from tests.ops.own_process import run_tests

TESTS = pathlib.Path(__file__).with_name("fake_gpu.py")


@pytest.mark.not_fast
def test_on_a_fake_gpu():
    reason = reason_not_to_run()
    if reason:
        pytest.skip(reason)
    report = run_tests(TESTS)
    assert "skipped" not in report or importlib.util.find_spec("fairseq") is None
