"""examples/benchmark/generation.py: transformers and fairseq write the same texts."""

import json
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

pytest.importorskip("transformers")
pytestmark = pytest.mark.not_fast
SCRIPT = REPOSITORY / "examples/benchmark/generation.py"
HF, FAIRSEQ = "transformers' generate", "fairseq's SequenceGenerator"


def generation(*arguments):
    command = [sys.executable, str(SCRIPT), "--length", "6", "--repeats", "1", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def test_random_model():
    done = generation("--batch-size", 1, 3)
    assert done.returncode == 0, done.stderr
    *lines, last = done.stdout.splitlines()
    results = json.loads(last)
    expected = {f"{name}, batch of {batch_size}" for name in (HF, FAIRSEQ) for batch_size in (1, 3)}
    assert expected <= set(results["results"]) and len(lines) == 1 + len(results["results"])
    assert all(figures["tokens_per_second"] > 0 for figures in results["results"].values())
    assert results["setting"]["length"] == 6 and results["setting"]["hardware"]


def test_bad_path(tmp_path):
    done = generation("--path", tmp_path / "none.pt")
    assert done.returncode == 1 and done.stderr.splitlines()[-1].startswith("error: ") and "none.pt" in done.stderr
