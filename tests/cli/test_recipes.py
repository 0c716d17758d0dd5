"""The recipes run from end to end: small, on made-up data and for a few updates."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from tests.cli.conftest import made_up_text
from tests.conftest import REPOSITORY

RECIPES = REPOSITORY / "examples/language_modeling"
CORPORA = ["char_ptb", "enwik8", "text8", "wikitext103"]


def recipe(name, *arguments):
    return subprocess.run(
        ["bash", str(RECIPES / name / "run.sh"), *map(str, arguments)],
        env={**os.environ, "FB_FAIRSEQ_VENV": sys.prefix, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=600, cwd="/",
    )


def made_up_corpus(name, folder):
    """What the recipe takes as DATA."""
    if name in ("enwik8", "text8"):
        text = made_up_text(20_000, 1)
        if name == "text8":
            text = b"<mediawiki>\n<page>\n<text xml:space=\"preserve\">" + text + b"[[link|20 words]]</text>\n</page>"
        (folder / "text").write_bytes(text)
        return folder / "text"
    for seed, split in enumerate(("train", "valid", "test")):
        text = made_up_text(12_000, 1)
        if name == "char_ptb":
            text += b"the company\n"
        else:  # more words than the last cut-off
            text += b"The " + b" ".join(b"word%d" % i for i in range(8100)) + b"\n"
        (folder / f"{'ptb.' if name == 'char_ptb' else ''}{split}.txt").write_bytes(text)
    return folder


@pytest.fixture(autouse=True)
def environment():
    if not (pathlib.Path(sys.prefix) / ".fb_fairseq").exists():
        pytest.skip("this environment was not made by tests/run.sh")


def check_results(out, names):
    results = json.loads((out / "results.json").read_text())
    assert sorted(results) == sorted(names)
    for name, result in results.items():
        assert 1 < result["test_bits_per_token"] < 20 and result["parameters"] > 10_000, name
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")
    return results


@pytest.mark.parametrize("name", CORPORA)
def test_small_recipe_starts(tmp_path, name):
    data, out = made_up_corpus(name, tmp_path), tmp_path / "out"
    arguments = ["--layers", "1", "--models", "relative_transformer_lm", "--steps", "prepare train", "--out", out]
    done = recipe(name, "--small", data, *arguments, "--updates", 2)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert (out / "relative_transformer_lm-1/checkpoint_best.pt").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", CORPORA)
def test_small_recipe(tmp_path, name):
    data, out = made_up_corpus(name, tmp_path), tmp_path / "out"
    done = recipe(name, "--small", data, "--layers", "1", "--updates", 3, "--finetune-updates", 2, "--out", out)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    models = ["feedback_transformer_lm", "relative_transformer_lm"]
    results = check_results(out, [f"{model}-1{end}" for model in models for end in ("", "-finetuned")])
    one, other = (results[f"{model}-1"]["parameters"] for model in models)
    assert one - other == 2, "the memory's scalars"
    assert done.stdout.count("goes on from: ") == 2


@pytest.mark.slow
def test_steps_and_resuming(tmp_path):
    """Steps one by one; training goes on where it stopped; what is missing is named."""
    data, out = made_up_corpus("enwik8", tmp_path), tmp_path / "out"
    common = ["--small", "--layers", "1", "--models", "relative_transformer_lm", "--out", out, "--steps"]
    assert "run the step prepare first" in recipe("enwik8", *common, "train").stderr
    assert recipe("enwik8", *common, "prepare", data).returncode == 0
    assert "run the step train first" in recipe("enwik8", *common, "finetune").stderr
    assert recipe("enwik8", *common, "train", "--updates", "2").returncode == 0
    done = recipe("enwik8", *common, "train evaluate", "--updates", "4", "--", "--dropout", "0.1")
    assert done.returncode == 0, done.stderr
    updates = re.findall(r'"train_num_updates": "(\d+)"', (out / "relative_transformer_lm-1.log").read_text())
    assert updates[-1] == "4" and "2" in updates
    assert "Loaded checkpoint" in (out / "relative_transformer_lm-1.out").read_text()
    check_results(out, ["relative_transformer_lm-1"])
    shutil.rmtree(out / "data")
    assert "run the step prepare first" in recipe("enwik8", *common, "evaluate").stderr


@pytest.mark.parametrize(
    "name,arguments,message",
    [
        ("enwik8", ["--small", "/nowhere"], "error: DATA /nowhere: no such file; give enwik8"),
        ("text8", ["{text}"], "20 bytes, md5 .*text8 has 100000000 bytes, md5 3bea1919949baf155f99411df5fada7e"),
        ("enwik8", ["{text}"], "20 bytes, md5 .*enwik8 has 100000000 bytes.*intact copy, or --small DATA"),
        ("char_ptb", ["--small", "/nowhere"], "error: PTB /nowhere: no ptb.train.txt"),
        ("wikitext103", ["{text}"], "error: DATA .*give wikitext-103-v1.zip"),
        ("wikitext103", ["{zip}"], "error: .*x.zip: .*wikitext-103-v1.zip has md5 9ddaacaf"),
        ("wikitext103", ["--small"], "error: DATA is missing; give DATA or --small DATA"),
        ("enwik8", ["--epochs", "3"], "error: --epochs: unknown option; give DATA"),
        ("enwik8", ["--steps", "learn", "x"], "error: --steps learn: unknown"),
        ("enwik8", ["--layers", "3", "x"], "error: --layers: only with --small"),
        ("enwik8", ["--small", "--update-freq", "3", "{text}"], "--update-freq 3: 64 streams cannot be shared by 1"),
    ],
)
def test_bad_input(tmp_path, name, arguments, message):
    (tmp_path / "text").write_bytes(made_up_text(20, 1))
    (tmp_path / "x.zip").write_bytes(b"PK")
    arguments = [a.format(text=tmp_path / "text", zip=tmp_path / "x.zip") for a in arguments]
    done = recipe(name, *arguments, "--out", tmp_path / "out")
    assert done.returncode != 0
    assert re.search(message, done.stderr.splitlines()[-1])
    assert (tmp_path / "out/data").exists() == ("--update-freq" in arguments), "nothing half-written"
