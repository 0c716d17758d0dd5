"""The scripts of examples/synthetic_tasks and examples/memory_composition, from the data to figures."""

import json
import re

import pytest

from fb_fairseq.hardware import training_hardware
from tests.cli.recipes import assert_prints_training, environment, recipe  # noqa: F401
from tests.cli.test_recipes import made_up_corpus

SMALL = ["--train", 80, "--valid", 8, "--test", 8]


def run(script, *arguments):
    done = recipe(script, *arguments)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def results_of(folder):
    return json.loads((folder / "results.json").read_text())


def test_recipe(tmp_path):
    """From the data to results.json and the curves."""
    arguments = ["--out", tmp_path / "out", "--updates", 2, "--seed", 3, "--span", 20, *SMALL]
    script, model = "synthetic_tasks/blocked_random_walk.sh", "feedback_transformer_lm"
    run(script, *arguments, "--models", model)
    (result,) = results_of(tmp_path / "out").values()
    assert 0 < result["accuracy"] < 100 and result["labels"] == 800
    assert result["hardware"].split(",")[0] == training_hardware().split(",")[0], "but for the threads"
    assert {name: result[name] for name in ("seed", "updates", "layers", "attention_span")} == {
        "seed": 3,
        "updates": 2,
        "layers": 2,
        "attention_span": 20,
    }
    assert "--adaptive-span-init 0.4" in (tmp_path / f"out/{model}.log").read_text()
    assert (tmp_path / "out/curves.png").read_bytes().startswith(b"\x89PNG")
    assert_prints_training(script, tmp_path / f"out/{model}.log", *arguments, "--models", model)
    assert "== prepare: done already" in run(script, *arguments, "--models", model)


@pytest.mark.slow
def test_resumes(tmp_path):
    arguments = ["--out", tmp_path / "out", "--updates", 6, "--models", "layer0", "--fixed-span", "--span", 20, *SMALL]
    run("synthetic_tasks/random_walk.sh", *arguments)
    log = (tmp_path / "out/layer0.log").read_text()
    assert "--memory-composition layer:0" in log and "--adaptive-span" not in log.splitlines()[0]
    assert "layer0: already trained for 6 updates" in run("synthetic_tasks/random_walk.sh", *arguments)
    for change, named in (
        (["--span", 30], "--attention-span 30 instead of 20"),
        (["--layers", 1], "--decoder-layers 1 instead of"),
        (["--updates", 3], "--decay-steps 1 instead of 2"),
        (["--", "--lr", "0.1"], "--lr 0.1 instead of"),
    ):
        done = recipe("synthetic_tasks/random_walk.sh", *arguments, *change)
        assert f"layer0: was trained with other options: {named}" in done.stderr.splitlines()[-1]
    done = recipe("synthetic_tasks/random_walk.sh", *arguments, "--size", 5)
    assert "holds models that were trained on other data (random_walk --seed 1 --size 4" in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_seeds(tmp_path):
    """Several seeds are a sweep; the task's own options belong to the setting of its data."""
    arguments = ["--seeds", "1 2", "--out", tmp_path / "out", "--updates", 2, "--models", "layer0"]
    arguments += [*SMALL, "--train", 300, "--span", 5]
    run("synthetic_tasks/algorithmic.sh", *arguments, "--conditions", "both", "--nested-assignments")
    (setting,) = json.loads((tmp_path / "out/summary.json").read_text())
    assert [run["seed"] for run in setting["runs"]] == [1, 2] and setting["attention_span"] == 5
    assert " == " in (tmp_path / "out/span5-seed2/data/train.input").read_text()
    done = recipe("synthetic_tasks/algorithmic.sh", *arguments, "--conditions", "equality")
    assert re.search(r"other data \(algorithmic --seed 2 .*--conditions both --nested-assignments\)", done.stdout)


@pytest.mark.slow
def test_curriculum(tmp_path):
    """Each stage starts from the one before it, with the same dictionaries; the result counts the time of all."""
    out, model = tmp_path / "out", "feedback_transformer_lm"
    arguments = ["--curriculum", "2 4", "--statements", 8, "--updates", 2, "--models", model, "--out", out, *SMALL]
    script = "synthetic_tasks/algorithmic.sh"
    run(script, *arguments, "--train", 300)
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
    again = run(script, *arguments, "--train", 300)
    assert again.count("already trained for 2 updates") == 3 and again.count("prepare: done already") == 3


@pytest.mark.slow
@pytest.mark.parametrize("task", ["copy", "reverse", "counting", "random_walk", "blocked_random_walk", "algorithmic"])
@pytest.mark.parametrize("scale", ["--small", "--full"])
def test_each_task(tmp_path, task, scale):
    """The full settings with a tiny model, to check that their options are compatible."""
    shape = []
    if scale == "--full":
        shape = ["--layers", 1, "--", "--decoder-embed-dim", 8, "--decoder-ffn-embed-dim", 8, "--batch-size", 4]
    lengths = {"copy": ["--length", 5, "--test-length", 9], "reverse": ["--length", 5, "--test-length", 9]}.get(
        task, []
    )
    models = ["--models", "feedback_transformer_lm relative_transformer_lm"] if scale == "--full" else []
    sizes = [*SMALL, "--train", 300]  # algorithmic.sh: 256 streams
    run(
        f"synthetic_tasks/{task}.sh",
        scale,
        "--out",
        tmp_path / "out",
        "--updates",
        2,
        *sizes,
        *lengths,
        *models,
        *shape,
    )
    results = results_of(tmp_path / "out")
    assert sorted(results)[:2] == ["feedback_transformer_lm", "relative_transformer_lm"]
    assert len(results) == (2 if scale == "--full" else 3)
    for result in results.values():
        assert 0 <= result["sequence_accuracy"] <= 100 and 0 <= result["accuracy"] < 100


@pytest.mark.slow
def test_sweep(tmp_path):
    models = "relative_transformer_lm streaming_lstm_lm"
    arguments = [
        "--seeds",
        "1 2",
        "--spans",
        "4 12",
        "--depths",
        "1 2",
        "--jobs",
        2,
        "--models",
        models,
        "--out",
        tmp_path / "out",
    ]
    out = run("synthetic_tasks/sweep.sh", "blocked_random_walk", *arguments, "--updates", 3, *SMALL)
    assert "[span12-layers2-seed2] == relative_transformer_lm: " in out
    found = [
        (entry["model"], entry["layers"], entry["attention_span"], len(entry["runs"]))
        for entry in json.loads((tmp_path / "out/summary.json").read_text())
    ]
    transformers = [("relative_transformer_lm", layers, span, 2) for layers in (1, 2) for span in (4, 12)]
    assert found == transformers + [("streaming_lstm_lm", layers, None, 2) for layers in (1, 2)]
    assert len((tmp_path / "out/summary.md").read_text().splitlines()) == 2 + 6
    assert (tmp_path / "out/summary.png").exists()


@pytest.mark.slow
def test_memory_composition(tmp_path):
    folder = tmp_path / "ptb"
    folder.mkdir()
    text = made_up_corpus("char_ptb", folder)
    arguments = ["--seeds", "1", "--layers", 1, "--walk-updates", 2, "--updates", 2, "--finetune-updates", 1]
    out = run("memory_composition", "--small", *arguments, "--out", tmp_path / "out", text)
    compositions = ["weighted", "average", "same-and-lower", "relative_transformer_lm", "layer0", "layer1"]
    assert sorted(re.findall(r"character-level PTB, (\S+): \d", out)) == sorted(compositions)
    assert sorted(re.findall(r"blocked random walk, (\S+): \d", out)) == sorted(compositions)
    assert (tmp_path / "out/composition.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "script,arguments,message",
    [
        ("random_walk.sh", ["--updates", "0"], "error: --updates 0: give a number, 1 or more"),
        ("random_walk.sh", ["--size", "0"], "error: --size 0: give a number, 1 or more"),
        ("random_walk.sh", ["--size", "1"], "error: --size 1: give a number from 2 to 1000000"),
        ("random_walk.sh", ["--longest", "9"], "error: .*--longest"),
        ("algorithmic.sh", ["--variables", "7"], "error: --variables 7: give a number from 1 to 6"),
        ("random_walk.sh", ["--curriculum", "9"], "error: --curriculum: random_walk.sh has none; only algorithmic.sh"),
        ("copy.sh", ["--curriculum", "two"], "error: --curriculum two: give a number, 1 or more"),
        ("copy.sh", ["text"], "error: text: unexpected argument, the data is generated; give --small"),
        ("copy.sh", ["--spam", "3"], "error: --spam: unknown option; give --small"),
        ("random_walk.sh", ["--conditions", "both"], "error: unrecognized arguments: --conditions both"),
        ("algorithmic.sh", ["--conditions", "or"], "error: --conditions or: unknown; choose from inequality"),
        ("algorithmic.sh", ["--nested-assignments", "--conditions"], "error: --conditions needs a value"),
        ("blocked_random_walk.sh", ["--blocks", "c"], 'error: --blocks "c": give one or more of the letters A to I'),
        ("copy.sh", ["--seeds", "1 x"], "error: --seeds x: give a number, 1 or more"),
        ("copy.sh", ["--seeds", "1 2", "--seed", "1"], "error: --seed, --seeds: give one of them"),
        ("copy.sh", ["--seeds", "1 1", "--jobs", "2"], "error: --jobs 2: only with several --seeds"),
        ("copy.sh", ["--seed", "one"], "error: --seed one: give a number, 1 or more"),
        ("sweep.sh", [], "error: the task is missing; give a task"),
        ("sweep.sh", ["recipe"], "error: recipe: unknown task; give a task"),
        ("sweep.sh", ["copy", "--seeds", "1 x"], "error: --seeds x: give a number, 1 or more"),
        ("sweep.sh", ["copy", "--seed", "1"], "error: --seed: give --seeds"),
        ("sweep.sh", ["copy", "--layers", "1"], "error: --layers: give --depths; give a task"),
        ("../memory_composition/run.sh", [], "error: PTB is missing; give PTB or --small"),
        (
            "../memory_composition/run.sh",
            ["--layers", "2", "x"],
            "error: --layers 2: the papers' setting for PTB has 6",
        ),
    ],
)
def test_bad_input(tmp_path, script, arguments, message):
    if script != "sweep.sh" or arguments:
        arguments = [*arguments, "--out", tmp_path / "out"]
    done = recipe(f"synthetic_tasks/{script}", *arguments)
    assert done.returncode != 0
    assert re.search(message, done.stderr.splitlines()[-1])
    assert not list((tmp_path / "out").glob("**/*")), "no incomplete files"
