"""The toy tasks and the memory compositions, from the data to figures."""

import json
import re
import shlex

import pytest

from fb_fairseq.hardware import training_hardware
from fb_fairseq.papers.runner.results import grouped, read_runs
from tests.cli.recipes import PNG, comparable, made_up_corpus, printed, recipe  # noqa: F401

SMALL = ["--train", 80, "--valid", 8, "--test", 8]


def results_of(folder):
    return json.loads((folder / "results.json").read_text())


def test_recipe(tmp_path, recipe):  # noqa: F811
    """From the data to results.json and the curves; what is printed is what runs."""
    out, model = tmp_path / "out", "feedback_transformer_lm"
    arguments = ["--out", out, "--updates", 2, "--seed", 3, "--span", 20, *SMALL, "--models", model]
    recipe("blocked_random_walk", *arguments)
    (result,) = results_of(out).values()
    assert 0 < result["accuracy"] < 100 and result["labels"] == 800
    assert result["hardware"].split(",")[0] == training_hardware().split(",")[0], "but for the threads"
    fields = {name: result[name] for name in ("seed", "updates", "layers", "attention_span")}
    assert fields == {"seed": 3, "updates": 2, "layers": 2, "attention_span": 20}
    trained = (out / f"{model}.log").read_text().splitlines()[0]
    assert "--adaptive-span-init 0.4" in trained
    assert printed("blocked_random_walk", *arguments) == [comparable(shlex.split(trained))]
    assert (out / "curves.png").read_bytes().startswith(PNG)
    again = recipe("blocked_random_walk", *arguments).out
    assert "== prepare: done already" in again and f"{model}: already trained for 2 updates" in again


@pytest.mark.slow
def test_curriculum(tmp_path, recipe):  # noqa: F811
    """Each stage starts from the one before it, with the same dictionaries; the result counts the time of all."""
    out, model = tmp_path / "out", "feedback_transformer_lm"
    arguments = ["--curriculum", "2 4", "--statements", 8, "--updates", 2, "--models", model, "--out", out, *SMALL]
    arguments += ["--train", 300]
    recipe("algorithmic", *arguments)
    for stage, length in (("statements-2/", 2), ("statements-4/", 4), ("", 8)):
        programs = (out / f"{stage}data/train.input").read_text().splitlines()
        assert {program.count(";") for program in programs} == {length}
        for side in ("input", "label"):
            assert (out / f"{stage}data/dict.{side}.txt").read_text() == (out / f"data/dict.{side}.txt").read_text()
    for stage, before in (("statements-4/", "statements-2/"), ("", "statements-4/")):
        log = (out / f"{stage}{model}.log").read_text()
        assert f"--finetune-from-model {out}/{before}{model}/checkpoint_best.pt" in log
        assert f"loading pretrained model from {out}/{before}" in log
    (result,) = results_of(out).values()
    assert result["num_updates"] == 6 and result["updates"] == 2 and "--curriculum 2,4" in result["data"]
    assert result["seconds"] == sum(int(path.read_text()) for path in out.rglob("*.seconds"))
    again = recipe("algorithmic", *arguments).out
    assert again.count("already trained for 2 updates") == 3 and again.count("prepare: done already") == 3


@pytest.mark.slow
@pytest.mark.parametrize("task", ["copy", "reverse", "counting", "random_walk", "blocked_random_walk", "algorithmic"])
@pytest.mark.parametrize("scale", ["--small", "--full"])
def test_each_task(tmp_path, recipe, task, scale):  # noqa: F811
    """The full settings with a tiny model, to check that their options are compatible."""
    shape = []
    if scale == "--full":
        shape = ["--layers", 1, "--", "--decoder-embed-dim", 8, "--decoder-ffn-embed-dim", 8, "--batch-size", 4]
    lengths = ["--length", 5, "--test-length", 9] if task in ("copy", "reverse") else []
    models = ["--models", "feedback_transformer_lm relative_transformer_lm"] if scale == "--full" else []
    sizes = [*SMALL, "--train", 300]  # algorithmic has 256 streams
    recipe(task, scale, "--out", tmp_path / "out", "--updates", 2, *sizes, *lengths, *models, *shape)
    results = results_of(tmp_path / "out")
    assert sorted(results)[:2] == ["feedback_transformer_lm", "relative_transformer_lm"]
    assert len(results) == (2 if scale == "--full" else 3)
    for result in results.values():
        assert 0 <= result["sequence_accuracy"] <= 100 and 0 <= result["accuracy"] < 100


@pytest.mark.slow
def test_sweep(tmp_path, recipe):  # noqa: F811
    arguments = ["--sweep", "--seeds", "1 2", "--spans", "4 12", "--depths", "1 2", "--jobs", 2, "--updates", 3, *SMALL]
    arguments += ["--models", "relative_transformer_lm streaming_lstm_lm", "--out", tmp_path / "out"]
    done = recipe("blocked_random_walk", *arguments)
    assert "[span12-layers2-seed2] == relative_transformer_lm: " in done.out
    groups, names = grouped(read_runs(str(tmp_path / "out"))), ("model", "layers", "attention_span")
    found = [(*(group.identity.get(name) for name in names), len(group.runs)) for group in groups]
    transformers = [("relative_transformer_lm", layers, span, 2) for layers in (1, 2) for span in (4, 12)]
    lstms = [("streaming_lstm_lm", layers, None, 2) for layers in (1, 2)]
    assert len(found) == 6 and set(found) == {*transformers, *lstms}
    assert (tmp_path / "out/summary.png").exists()


@pytest.mark.slow
def test_memory_composition(tmp_path, recipe):  # noqa: F811
    folder = tmp_path / "ptb"
    folder.mkdir()
    text = made_up_corpus("char_ptb", folder)
    arguments = ["--seeds", 1, "--layers", 1, "--walk-updates", 2, "--updates", 2, "--finetune-updates", 1]
    out = recipe("memory_composition", "--small", *arguments, "--out", tmp_path / "out", text).out
    compositions = ["weighted", "average", "same-and-lower", "relative_transformer_lm", "layer0", "layer1"]
    assert sorted(re.findall(r"character-level PTB, (\S+): \d", out)) == sorted(compositions)
    assert sorted(re.findall(r"blocked random walk, (\S+): \d", out)) == sorted(compositions)
    assert (tmp_path / "out/composition.png").read_bytes().startswith(PNG)
