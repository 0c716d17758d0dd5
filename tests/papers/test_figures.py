"""The tables and figures of the experiments."""

import json

import pytest

from fb_fairseq.papers.figures import against, persistent_memory
from fb_fairseq.papers.results.runs import grouped, read_runs, spread
from tests.papers.programs import run_module

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.not_fast


def made_up_run(folder, seed, accuracy, **setting):
    """Write the results and the log of a run with made-up numbers."""
    name = "relative_transformer_lm"
    sizes = {"parameters": 12345, "layers": 2, "updates": 50, "seed": seed, "seconds": 90}
    accuracies = {"accuracy": accuracy, "sequence_accuracy": accuracy / 2}
    result = {"recipe": "copy", "model": name, **sizes, **accuracies, **setting}
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(json.dumps({name: result}))
    log = [{"num_updates": str(u), "accuracy": str(u + seed)} for u in (25, 50)]
    (folder / f"{name}.log").write_text("".join(json.dumps(entry) + "\n" for entry in log))


def test_summary(tmp_path):
    made_up_run(tmp_path / "b", 2, 94.0, attention_span=8)
    made_up_run(tmp_path / "a", 1, 90.0, attention_span=8)
    made_up_run(tmp_path / "c", 1, 70.0, attention_span=100)
    made_up_run(tmp_path / "d", 1, 80.0, attention_span=8, layers=4)
    done = run_module("synthetic_tasks", tmp_path)
    assert done.status == 0, done.errors
    groups = grouped(read_runs(str(tmp_path)))
    names = ["Transformer, 2 layers, span 8", "Transformer, 2 layers, span 100", "Transformer, 4 layers, span 8"]
    assert against.labels(groups) == names
    assert [spread(group.values("accuracy"), "accuracy") for group in groups] == ["92.00 ± 2.83", "70.00", "80.00"]
    drawn = against.lines(groups, "layers", "accuracy")
    assert list(drawn) == ["Transformer, span 8", "Transformer, span 100"]
    assert [group.identity["layers"] for group in drawn["Transformer, span 8"]] == [2, 4]
    assert (tmp_path / "summary.png").read_bytes().startswith(b"\x89PNG")


def test_memory_composition(tmp_path):
    (tmp_path / "walk").mkdir()
    (tmp_path / "char_ptb").mkdir()
    runs = [{"accuracy": 90.0}, {"accuracy": 100.0}]
    for seed, run in enumerate(runs):
        (tmp_path / f"walk/seed{seed}").mkdir()
        common = {"recipe": "blocked_random_walk", "seed": seed, **run}
        results = {name: {**common, "model": name, "layers": n} for name, n in (("weighted", 3), ("average", 2))}
        (tmp_path / f"walk/seed{seed}/results.json").write_text(json.dumps(results))
    fields = ("model", "layers", "finetuned", "seed", "test_bits_per_token")
    runs = [("layer1", 3, False, 1, 3.0), ("layer1", 2, True, 1, 1.0), ("layer1", 3, True, 1, 2.5)]
    runs += [("layer1", 3, True, 2, 2.0), ("relative_transformer_lm_char_ptb", None, False, 1, 2.75)]
    results = {str(i): {"recipe": "char_ptb", **dict(zip(fields, run))} for i, run in enumerate(runs)}
    (tmp_path / "char_ptb/results.json").write_text(json.dumps(results))
    done = run_module("memory_composition", tmp_path, 3)
    assert done.status == 0, done.errors
    assert done.out.splitlines()[:-1] == [
        "blocked random walk, weighted: 95.000 ([90.0, 100.0])",
        "character-level PTB, layer1: 2.250 ([2.5, 2.0])",
        "character-level PTB, relative_transformer_lm: 2.750",
    ]
    assert (tmp_path / "composition.png").read_bytes().startswith(b"\x89PNG")


def test_persistent_vectors(tmp_path):
    """The best validation of each seed, fine-tuning included."""
    runs = {"N0-2": [5, 4], "N0-2-seed2": [6], "N0-2-seed2-finetuned": [3], "N8-2": [2], "attn-split-2": [3]}
    for run, values in runs.items():
        size = 8 if run[0] == "a" else run[1]
        lines = [f"fairseq-train --persistent-memory-size {size}"]
        lines += [json.dumps({"valid_bpb": str(v), "valid_num_updates": str(i)}) for i, v in enumerate(values)]
        (tmp_path / f"{run}.log").write_text("\n".join(lines) + "\n")
    done = run_module("persistent_memory", tmp_path)
    assert done.status == 0, done.errors
    assert (tmp_path / "figure2.png").read_bytes().startswith(b"\x89PNG")
    best = {model: sorted(values) for model, values in persistent_memory.best_of_runs(str(tmp_path)).items()}
    assert best == {"N0": [3, 4], "N8": [2], "attn-split": [3]}


def test_reinforcement_learning(tmp_path):
    pytest.importorskip("gymnasium")
    runs = [("transformer", 2, 1, 50.0), ("transformer", 8, 1, 60.0)]
    runs += [("feedback", 2, 1, 90.0), ("feedback", 2, 2, 100.0), ("lstm", None, 1, 75.0)]
    for agent, span, seed, success in runs:
        run = tmp_path / (f"{agent}-span{span}-seed{seed}" if span else f"{agent}-seed{seed}")
        run.mkdir()
        run.with_suffix(".json").write_text(json.dumps({"reward": success / 100, "success": success, "episodes": 9}))
        log = [dict(frames=n, fps=5, reward=n * seed / 100, success=n / 100) for n in (10, 20)]
        (run / "log.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in log))
    done = run_module("reinforcement_learning", tmp_path, "corridor", "small")
    assert done.status == 0, done.errors
    results = json.loads((tmp_path / "results.json").read_text())
    assert len(results) == 5 and {run["seconds"] for run in results.values()} == {4}, "20 frames at 5 a second"
    groups = grouped(read_runs(str(tmp_path)))
    found = {name: spread(group.values("success"), "success") for name, group in zip(against.labels(groups), groups)}
    assert found.pop("Feedback Transformer, span 2") == "95.00 ± 7.07"
    assert found == {"Transformer, span 2": "50.00", "Transformer, span 8": "60.00", "LSTM": "75.00"}
    assert spread(groups[0].values("training_reward"), "reward") == "0.30 ± 0.14"
    drawn = against.lines(groups, "span", "success")
    assert [len(line) for line in drawn.values()] == [1, 2, 1] and against.value_of(drawn["LSTM"][0], "span") is None
    for name in "curves.png", "memory.png":
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


MORE = {"memory_composition": [3], "reinforcement_learning": ["corridor", "small"]}


@pytest.mark.parametrize("name", ["synthetic_tasks", "persistent_memory", "state_tracking", *MORE])
def test_bad_input(tmp_path, name):
    if name == "reinforcement_learning":
        pytest.importorskip("gymnasium")
    more = MORE.get(name, [])
    for arguments, message in (([], "arguments are required: OUT"), ([tmp_path, *more], "; ")):
        done = run_module(name, *arguments)
        assert done.status == 2 and message in done.errors and len(done.errors.splitlines()) == 1
        assert done.errors.startswith(f"python -m fb_fairseq.papers.experiments.figures.{name}: error: ")
