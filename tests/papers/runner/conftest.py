"""Recipes in this process, on a machine without GPUs."""

import pytest

from fb_fairseq.papers.runner.processes import RUNNING


@pytest.fixture(autouse=True)
def no_gpus(monkeypatch):
    """What is printed does not depend on them, and starting torch to count them takes seconds."""
    monkeypatch.setenv("FB_FAIRSEQ_GPUS", "0")


@pytest.fixture(autouse=True)
def not_interrupted():
    """An earlier test may have stopped all commands."""
    RUNNING.interrupted = False
