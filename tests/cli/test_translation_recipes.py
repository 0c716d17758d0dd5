"""The translation and summarization recipes from start to finish: small models on made-up data, for a few updates."""

import json
import runpy
import sys

import pytest

from fb_fairseq.papers.compare import main as compare
from tests.cli.odd_names import ODD_NAME
from tests.cli.recipes import PNG, made_up_parallel_corpus, recipe  # noqa: F401
from tests.conftest import REPOSITORY

NAMES = ["iwslt14_de_en", "wmt14_en_de", "cnn_dm"]


def check_results(out, sentences):
    results = json.loads((out / "results.json").read_text())
    assert sorted(results) == ["feedback-1", "initialised-1", "transformer-1"]
    for result in results.values():
        assert result["sentences"] == sentences and result["lenpen"] > 0
        assert {"sacrebleu", "tokenized_bleu", "rougeLsum", "dev_nll", "decoded_tokens_per_second"} <= set(result)
    weights = results["feedback-1"]["parameters"] - results["transformer-1"]["parameters"]
    assert weights == 2, "the weights of the memory"
    assert "parameters from " in (out / "initialised-1.log").read_text()
    assert (out / "curves.png").read_bytes().startswith(PNG)


def test_from_the_data_to_scores(tmp_path, recipe):  # noqa: F811
    """In a folder with an odd name: one model, from subwords to scores, and what is done is not repeated."""
    folder = tmp_path / ODD_NAME
    folder.mkdir()
    data, out = made_up_parallel_corpus(folder / "data", NAMES[0]), folder / "out"
    arguments = ["--small", data, "--layers", 1, "--models", "feedback", "--updates", 2, "--out", out]
    recipe(NAMES[0], *arguments)
    (result,) = json.loads((out / "results.json").read_text()).values()
    assert result["projections"] == "per-layer" and result["sentences"] == 20 and "dev_score" in result
    times = {path: path.stat().st_mtime_ns for path in out.glob("feedback-1.*") if path.suffix in (".pt", ".test")}
    again = recipe(NAMES[0], *arguments).out
    assert "== prepare: done already\n" in again and "already trained for 2 updates" in again
    assert times == {path: path.stat().st_mtime_ns for path in times} and len(times) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_small_recipe(tmp_path, recipe, name):  # noqa: F811
    data, out = made_up_parallel_corpus(tmp_path / "data", name), tmp_path / "out"
    recipe(name, "--small", data, "--layers", 1, "--updates", 4, "--out", out)
    check_results(out, 100 if name == "cnn_dm" else 20)


def decoding_speed(monkeypatch, *options):
    sizes = "--sentences 2 --lengths 5 --repeats 1 --embed-dim 16 --ffn-dim 16 --heads 2 --vocabulary 30 --cpu"
    monkeypatch.setattr(sys, "argv", ["decoding_speed.py", *sizes.split(), *map(str, options)])
    runpy.run_path(str(REPOSITORY / "examples/translation/decoding_speed.py"), run_name="__main__")


def test_decoding_speed(monkeypatch, capsys):
    """A vanilla decoder keeps keys and values of each layer, a feedback decoder with shared projections one set."""
    decoding_speed(monkeypatch, "--layers", 2)
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    state = {name: result["state_bytes"] for name, result in found.items() if name != "setting"}
    assert state == {
        "2 layers, 5 tokens, vanilla": 2 * 2 * 5 * 16 * 4,
        "2 layers, 5 tokens, feedback, shared": 2 * 5 * 16 * 4,
        "2 layers, 5 tokens, feedback, per-layer": 2 * 2 * 5 * 16 * 4,
        "2 layers, 5 tokens, feedback, shared, torch": 2 * 5 * 16 * 4,
    }


def test_decoding_speed_of_one_layer(monkeypatch, capsys, tmp_path):
    """Compare divides the speeds that the benchmark has measured."""
    decoding_speed(monkeypatch, "--layers", 1, 6, "--out", tmp_path / "out")
    speed = {
        name: run["words_per_second"]
        for name, run in json.loads(capsys.readouterr().out.splitlines()[-1]).items()
        if name != "setting"
    }
    compare([str(tmp_path / "out")])
    text = capsys.readouterr().out
    shared, per_layer = (
        speed[f"1 layers, 5 tokens, {kind}"] / speed[f"6 layers, 5 tokens, {kind}"]
        for kind in ("feedback, shared", "feedback, per-layer")
    )
    for paper in ("4.2", "3.7"):
        assert f"| {paper} | {shared:.2f}; {per_layer:.2f} | feedback, 1 layer, shared," in text
    assert "not comparable" in text and "torch" not in text and "Measured on" in text
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/results.json").write_text("mine")
    with pytest.raises(SystemExit):
        decoding_speed(monkeypatch, "--out", tmp_path / "mine")
    assert "mine: has files that this command has not written" in capsys.readouterr().err


def test_training_speed(monkeypatch, capsys):
    """Every model at every number of layers."""
    sizes = "--layers 1 2 --encoder-layers 1 --sentences 2 --words 5 --repeats 1 --embed-dim 16 --ffn-dim 16 --heads 2"
    sizes += " --vocabulary 30 --cpu"
    monkeypatch.setattr(sys, "argv", ["training_speed.py", *sizes.split()])
    runpy.run_path(str(REPOSITORY / "examples/translation/training_speed.py"), run_name="__main__")
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    models = ["vanilla", "feedback, shared", "feedback, per-layer", "feedback, shared, reference loop"]
    assert [(r["layers"], r["model"]) for r in found["results"]] == [(n, model) for n in (1, 2) for model in models]
    assert all(r["words_per_second"] > 0 for r in found["results"])
