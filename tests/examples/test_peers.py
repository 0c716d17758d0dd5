"""examples/benchmark/peers.py: our own models, and those of the public implementations that are installed."""

import importlib.util
import json
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

pytestmark = pytest.mark.not_fast
SCRIPT = REPOSITORY / "examples/benchmark/peers.py"
SMALL = "--layers 1 --embed-dim 16 --heads 2 --ffn-dim 24 --block 4 --span 5 --batch-size 2 --repeats 1".split()
PEERS = {"lucidrains": "feedback_transformer_pytorch", "labml": "labml_nn"}


def test_models():
    words = [sys.executable, str(SCRIPT), *SMALL, "--device", "cpu"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *lines, last = done.stdout.splitlines()
    results = json.loads(last)
    installed = {name for name, module in PEERS.items() if importlib.util.find_spec(module)}
    expected = {"transformer", "cpp", "reference"} | installed
    assert set(results["tokens_per_second"]) == expected
    assert {line.split()[0] for line in lines[-len(expected) :]} == expected
    assert set(results["ratio"]) == {f"{name}_vs_transformer" for name in expected - {"transformer"}}
    assert results["setting"]["span"] == 5 and results["setting"]["hardware"]
    left_out = [line for line in lines if "is left out" in line]
    assert {line.split()[0] for line in left_out} == set(PEERS) - installed
    assert all("pip install" in line for line in left_out)
