"""The translation and summarization recipes from start to finish: small models on made-up data, for a few updates."""

import csv
import gzip
import json
import re

import pytest

from tests.cli.conftest import made_up_text
from tests.cli.parallel_text import pairs
from tests.cli.recipes import environment, recipe  # noqa: F401
from tests.cli.test_recipes import ODD_NAME
from tests.conftest import REPOSITORY


def made_up_data(folder, name):
    """Write what a recipe's --small takes as DATA, and return its path."""
    folder.mkdir()
    if name == "summarization/cnn_dm":
        with open(folder / "some.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["article", "highlights", "id"])
            for n in range(330):
                article = made_up_text(400, n).decode()
                writer.writerow([article, "\n".join(article.split("\n")[:2]), n])
        return folder
    for seed, (split, number) in enumerate((("train", 300), ("val", 20), ("test_2016_flickr", 20))):
        for language, text in zip(("de", "en"), zip(*pairs(number, seed))):
            with gzip.open(folder / f"{split}.{language}.gz", "wt") as file:
                file.write("\n".join(text) + "\n")
    return folder


NAMES = ["translation/iwslt14_de_en", "translation/wmt14_en_de", "summarization/cnn_dm"]


@pytest.mark.parametrize("name", [NAMES[0]] + [pytest.param(name, marks=pytest.mark.slow) for name in NAMES[1:]])
def test_small_recipe_starts(tmp_path, name):
    folder = tmp_path / ODD_NAME
    folder.mkdir()
    data, out = made_up_data(folder / "data", name), folder / "out"
    arguments = ["--layers", "1", "--models", "feedback", "--steps", "prepare train", "--updates", 2, "--out", out]
    done = recipe(name, "--small", data, *arguments)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert (out / "feedback-1/checkpoint_best.pt").exists()
    again = recipe(name, "--small", data, "--steps", "prepare", "--out", out)
    assert again.returncode == 0 and "== prepare: done already\n" in again.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_small_recipe(tmp_path, name):
    data, out = made_up_data(tmp_path / "data", name), tmp_path / "out"
    done = recipe(name, "--small", data, "--layers", "1", "--updates", 4, "--out", out)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    results = json.loads((out / "results.json").read_text())
    assert sorted(results) == ["feedback-1", "initialised-1", "transformer-1"]
    for result in results.values():
        assert result["sentences"] == (100 if "cnn_dm" in name else 20) and result["lenpen"] > 0
        assert {"sacrebleu", "tokenized_bleu", "rougeLsum", "dev_nll", "decoded_tokens_per_second"} <= set(result)
    assert results["feedback-1"]["parameters"] - results["transformer-1"]["parameters"] == 2, (
        "the weights of the memory"
    )
    assert "parameters from " in (out / "initialised-1.log").read_text()
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "name,arguments,message",
    [
        (NAMES[0], ["--small", "/nowhere"], "DATA /nowhere: no train.de.gz in this folder; give Multi30k"),
        (NAMES[0], ["/nowhere"], "/nowhere/train.de: no such file"),
        (NAMES[0], ["{folder}"], "train.de: 1 lines, not 160239; use the corpus named in the README, or --small"),
        (NAMES[1], ["/nowhere"], "/nowhere/train.tok.clean.bpe.32000.en: no such file"),
        (NAMES[2], ["--small", "{folder}"], "no \\*.csv or \\*.csv.gz in this folder"),
        (NAMES[2], ["{folder}"], "no train.csv or train.csv.gz in this folder"),
        (NAMES[0], ["--models", "best", "x"], "--models best: unknown"),
        (NAMES[0], ["--layers", "0", "x"], "--layers 0: give a number, 1 or more"),
        (NAMES[0], [], "DATA is missing; give DATA or --small DATA"),
        (NAMES[0], ["--small", "{folder}/train.de"], "DATA .*/train.de: no train.de.gz in this folder"),
        (NAMES[0], ["--small", "{bad}"], "train.de.gz: not UTF-8 text, or damaged; convert it"),
        (NAMES[2], ["--small", "{bad}"], "some.csv: not UTF-8 text, or damaged; convert it"),
        (NAMES[0], ["--projections", "none", "x"], "--projections none: unknown"),
    ],
)
def test_bad_input(tmp_path, name, arguments, message):
    (tmp_path / "folder").mkdir()
    for language in ("de", "en"):
        (tmp_path / f"folder/train.{language}").write_text("a line\n")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/some.csv").write_bytes("article,highlights\né,é\n".encode("latin-1"))
    (tmp_path / "bad/train.de.gz").write_bytes(gzip.compress("é\n".encode("latin-1")))
    arguments = [argument.format(folder=tmp_path / "folder", bad=tmp_path / "bad") for argument in arguments]
    done = recipe(name, *arguments, "--out", tmp_path / "out")
    (line,) = done.stderr.splitlines()
    assert done.returncode != 0 and re.search(message, line)
    assert not (tmp_path / "out").exists()


def test_decoding_speed(monkeypatch, capsys):
    """A vanilla decoder keeps keys and values of each layer, a feedback decoder with shared projections one set."""
    import runpy
    import sys

    sizes = (
        "--layers 2 --sentences 2 --lengths 5 --repeats 1 --embed-dim 16 --ffn-dim 16 --heads 2 --vocabulary 30 --cpu"
    )
    monkeypatch.setattr(sys, "argv", ["decoding_speed.py", *sizes.split()])
    runpy.run_path(str(REPOSITORY / "examples/translation/decoding_speed.py"), run_name="__main__")
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    state = {name: result["state_bytes"] for name, result in found.items() if name != "setting"}
    assert state == {
        "2 layers, 5 tokens, vanilla": 2 * 2 * 5 * 16 * 4,
        "2 layers, 5 tokens, feedback, shared": 2 * 5 * 16 * 4,
        "2 layers, 5 tokens, feedback, per-layer": 2 * 2 * 5 * 16 * 4,
        "2 layers, 5 tokens, feedback, shared, torch": 2 * 5 * 16 * 4,
    }


def test_training_speed(monkeypatch, capsys):
    """Every model at every number of layers."""
    import runpy
    import sys

    sizes = (
        "--layers 1 2 --encoder-layers 1 --sentences 2 --words 5 --repeats 1 --embed-dim 16 --ffn-dim 16 --heads 2 "
        "--vocabulary 30 --cpu"
    )
    monkeypatch.setattr(sys, "argv", ["training_speed.py", *sizes.split()])
    runpy.run_path(str(REPOSITORY / "examples/translation/training_speed.py"), run_name="__main__")
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    models = ["vanilla", "feedback, shared", "feedback, per-layer", "feedback, shared, fast loop"]
    assert [(r["layers"], r["model"]) for r in found["results"]] == [(n, model) for n in (1, 2) for model in models]
    assert all(r["words_per_second"] > 0 for r in found["results"])
