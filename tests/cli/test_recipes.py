"""The small recipes run from end to end, on made-up data and for a few updates."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests.cli.conftest import made_up_text
from tests.conftest import REPOSITORY

RECIPES = REPOSITORY / "examples/language_modeling"


def recipe(name, *arguments):
    return subprocess.run(
        ["bash", str(RECIPES / name / "small.sh"), *map(str, arguments)],
        env={**os.environ, "FB_FAIRSEQ_VENV": sys.prefix}, capture_output=True, text=True, timeout=600, cwd="/",
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["enwik8", "char_ptb", "wikitext103"])
def test_recipe(tmp_path, name):
    if not (pathlib.Path(sys.prefix) / ".fb_fairseq").exists():
        pytest.skip("this environment was not made by tests/run.sh")
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    if name == "enwik8":
        (data / "text").write_bytes(made_up_text(20_000, 1))
        arguments = [data / "text", "--layers", "1"]
    else:
        for seed, split in enumerate(("train", "valid", "test")):
            text = made_up_text(30_000, 1)
            if name == "wikitext103":  # more words than the last cut-off
                text += b" ".join(b"word%d" % i for i in range(9000)) + b"\n"
            (data / f"{'ptb.' if name == 'char_ptb' else ''}{split}.txt").write_bytes(text)
        arguments = [data]
    done = recipe(name, *arguments, "--updates", 3, "--out", out)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    results = json.loads((out / "results.json").read_text())
    one, other = (result["parameters"] for result in results.values())
    assert len(results) == 2 and 0 < one - other < 10
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "name,arguments,message",
    [
        ("enwik8", ["/nowhere"], "error: TEXT /nowhere"),
        ("char_ptb", ["/nowhere"], "error: PTB /nowhere: no ptb.train.txt"),
        ("wikitext103", [], "error: WIKITEXT2 (none given)"),
        ("enwik8", ["--epochs", "3"], "error: --epochs: unknown option; there are --layers --updates"),
    ],
)
def test_bad_input(tmp_path, name, arguments, message):
    done = recipe(name, *arguments, "--out", tmp_path / "out")
    assert done.returncode != 0 and message in done.stderr.splitlines()[-1]
