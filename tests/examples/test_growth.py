"""examples/benchmark/growth.py: every size once, also after an interruption; a figure."""

import json
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

pytestmark = pytest.mark.not_fast
SCRIPT = f"""
import runpy, sys
sys.argv = sys.argv[1:]
growth = runpy.run_path({str(REPOSITORY / "examples/benchmark/growth.py")!r})
growth["SIZES"].update(span=[2, 3], layers=[1, 2], embed_dim=[8], batch_size=[1])
growth["main"]()
"""
SMALL = "--layers 1 --embed-dim 16 --heads 2 --ffn-dim 24 --block 4 --span 5 --batch-size 2 --repeats 1".split()


def grow(out, *more):
    command = [sys.executable, "-c", SCRIPT, "growth.py", "--out", str(out), *SMALL, *more]
    return subprocess.run(command, capture_output=True, text=True)


def test_every_size_once(tmp_path):
    out, figure = tmp_path / "growth.jsonl", tmp_path / "growth.png"
    done = grow(out)
    assert done.returncode == 0, done.stderr
    lines = out.read_text().splitlines()
    settings = [json.loads(line)["setting"] for line in lines]
    assert [(s["varies"], s[s["varies"]]) for s in settings] == [
        ("span", 2), ("span", 3), ("layers", 1), ("layers", 2), ("embed_dim", 8), ("batch_size", 1)
    ]  # fmt: skip
    assert settings[4]["ffn_dim"] == 32
    assert set(json.loads(lines[0])["tokens_per_second"]) == {"native", "fast", "transformer"}
    out.write_text("\n".join(lines[:3]) + "\n")
    done = grow(out, "--figure", str(figure))
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 3 and len(out.read_text().splitlines()) == 6
    assert figure.stat().st_size > 1000


def test_bad_input(tmp_path):
    done = grow(tmp_path / "out", "--span", "0")
    assert done.returncode == 2 and "--span 0: give 1 or more" in done.stderr
