"""Tests on a real GPU. ``examples/benchmark/gpu.py`` runs them; elsewhere they are skipped.

``FB_FAIRSEQ_GPU_TESTS=cpu`` runs them on the CPU, to try the tests themselves.
"""

import os

import pytest
import torch

VARIABLE = "FB_FAIRSEQ_GPU_TESTS"


@pytest.fixture
def device():
    """The device; everything that a test makes is on it."""
    name = os.environ.get(VARIABLE, "cuda")
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    with torch.device(name):
        yield torch.device(name)
