"""The tables and figures of the experiments."""

import itertools
import json
from unittest import mock

import pytest

from fb_fairseq.errors import UserError
from fb_fairseq.papers.figures import against, memory_composition, persistent_memory, state_tracking
from fb_fairseq.papers.figures.names import labels, value_of
from fb_fairseq.papers.results.runs import grouped, read_runs
from fb_fairseq.papers.results.words import spread
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


def test_against(tmp_path):
    """A line for each setting of the others, against the numbers of layers."""
    made_up_run(tmp_path / "b", 2, 94.0, attention_span=8)
    made_up_run(tmp_path / "a", 1, 90.0, attention_span=8)
    made_up_run(tmp_path / "c", 1, 70.0, attention_span=100)
    made_up_run(tmp_path / "d", 1, 80.0, attention_span=8, layers=4)
    made_up_run(tmp_path / "e", 1, 60.0, attention_span=100, layers=None)
    done = run_module("figures.against", tmp_path, "layers", "accuracy")
    assert done.status == 0, done.errors
    groups = grouped(read_runs(str(tmp_path)))
    names = ["Transformer, 2 layers, span 8", "Transformer, 2 layers, span 100", "Transformer, 4 layers, span 8"]
    names.append("Transformer, span 100")
    assert labels(groups) == names
    assert [spread(group.values("accuracy"), "accuracy") for group in groups] == [
        "92.00 ± 2.83",
        "70.00",
        "80.00",
        "60.00",
    ]
    drawn = against.lines(groups, "layers", "accuracy")
    assert list(drawn) == ["Transformer, span 8", "Transformer, span 100"]
    assert [group.identity["layers"] for group in drawn["Transformer, span 8"]] == [2, 4]
    assert (tmp_path / "layers.png").read_bytes().startswith(b"\x89PNG")
    groups[0].runs[0]["of_one"] = 1.0
    assert len(against.panels(groups, "layers", ["accuracy", "of_one", "of_none"])) == 2, "a metric that any have"
    axes = mock.MagicMock()
    with mock.patch.object(against, "draw_points") as points:
        against.draw(axes, groups, "layers", "accuracy")
    assert points.call_args_list[1].args[1:3] == ((2,), ([70.0],)), "whether or not others of a line have the field"
    against.draw(axes, groups, "own_field", "accuracy")
    assert axes.set_xlabel.call_args.args == ("own field",)
    with mock.patch.object(against, "draw_reference") as reference, mock.patch.object(against, "draw_points"):
        against.draw(axes, groups, "layers", "accuracy")
    assert [call.args[1:3] for call in reference.call_args_list] == [(60.0, "Transformer, span 100, layers not given")]


def test_names_of_settings_that_only_some_have(tmp_path):
    made_up_run(tmp_path / "a", 1, 90.0, small=True)
    made_up_run(tmp_path / "b", 1, 90.0, small=False)
    made_up_run(tmp_path / "c", 1, 90.0, small=False, attention_span=8)
    assert labels(grouped(read_runs(str(tmp_path)))) == [
        "Transformer, small",
        "Transformer, full size",
        "Transformer, full size, span 8",
    ]


def test_figure_against_the_learning_rate():
    """Models whose names end with the value are one line; what was trained otherwise is another."""
    runs = [
        dict(recipe="r", model=f"feedback-lr{lr}", lr=lr, seed=seed, test_perplexity=20 + lr)
        for lr, seed in itertools.product((0.01, 0.001), (1, 2))
    ]
    (drawn,) = against.lines(grouped(runs), "lr", "test_perplexity").items()
    assert drawn[0] == "Feedback Transformer" and [value_of(group, "lr") for group in drawn[1]] == [0.001, 0.01]
    assert value_of(drawn[1][0]._replace(runs=[{"wps": 1}, {"wps": 2}]), "wps") is None, "each seed has its own"
    runs = [{**run, "model": "feedback", "settings": {"clip_norm": clip}} for run in runs for clip in ("1", "2")]
    names = list(against.lines(grouped(runs), "lr", "test_perplexity"))
    assert names == ["Feedback Transformer, clip_norm 1", "Feedback Transformer, clip_norm 2"]


def test_memory_composition(tmp_path):
    (tmp_path / "walk").mkdir()
    (tmp_path / "char_ptb").mkdir()
    runs = [{"accuracy": 90.0}, {"accuracy": 100.0}]
    for seed, run in enumerate(runs):
        (tmp_path / f"walk/seed{seed}").mkdir()
        common = {"recipe": "blocked_random_walk", "seed": seed, **run}
        rows = (
            ("layer1", 3, None),
            ("average", 2, None),
            ("relative_transformer_lm", 3, 8),
            ("relative_transformer_lm", 3, 9),
        )
        results = {str(row): {**common, **dict(zip(("model", "layers", "span"), row))} for row in rows}
        (tmp_path / f"walk/seed{seed}/results.json").write_text(json.dumps(results))
    fields = ("model", "layers", "finetuned", "seed", "test_bits_per_token")
    runs = [("layer1", 3, False, 1, 3.0), ("layer1", 2, True, 1, 1.0), ("layer1", 3, True, 1, 2.5)]
    runs += [("layer1", 3, True, 2, 2.0), ("relative_transformer_lm_char_ptb", None, False, 1, 2.75)]
    runs += [("relative_transformer_lm_char_ptb", None, True, 1, None), ("layer2", 3, True, 1, None)]  # not evaluated
    results = {str(i): {"recipe": "char_ptb", **dict(zip(fields, run))} for i, run in enumerate(runs)}
    (tmp_path / "char_ptb/results.json").write_text(json.dumps(results))
    done = run_module("figures.memory_composition", tmp_path, 3)
    assert done.status == 0, done.errors
    before = "previous layer (Transformer)"
    for folder, metric, rows in (
        ("walk", "accuracy", dict.fromkeys((f"{before}, span 8", f"{before}, span 9", "layer 1"), [90, 100])),
        ("char_ptb", "test_bits_per_token", {before: [2.75], "layer 1": [2.5, 2.0]}),
    ):
        found = memory_composition.values_of(grouped(read_runs(str(tmp_path / folder))), metric, layers=3)
        with mock.patch.object(memory_composition, "draw_names") as drawn:
            memory_composition.draw_compositions(mock.Mock(), found, "", "")
        _, drawn_rows, colors = drawn.call_args.args
        assert drawn_rows == rows and colors.count(colors[-1]) == 1, "that of the last row is its own"
    assert (tmp_path / "composition.png").read_bytes().startswith(b"\x89PNG")


def test_persistent_vectors(tmp_path):
    """The best validation of each seed, fine-tuning included."""
    runs = [
        ("N0", 1, 5, 0),
        ("N0", 1, 4, 0),
        ("N0", 2, 6, 0),
        ("N0", 2, 3, 0),
        ("N8", 1, 2, 8),
        ("attn-split", 1, 3, 8),
    ]
    results = {}
    for number, (model, seed, bits, size) in enumerate(runs):
        values = {"dev_bits_per_token": bits, "settings": {"persistent_memory_size": str(size)}, "finetuned": bits < 5}
        results[str(number)] = {"recipe": "persistent_memory", "model": model, "seed": seed, **values}
    (tmp_path / "results.json").write_text(json.dumps(results))
    done = run_module("figures.persistent_memory", tmp_path)
    assert done.status == 0, done.errors
    assert (tmp_path / "figure2.png").read_bytes().startswith(b"\x89PNG")
    best = persistent_memory.best_of_runs(read_runs(str(tmp_path)))
    numbers = {model: values for model, values in best.items() if model not in persistent_memory.VARIANTS}
    assert [len(persistent_memory.panels(each, "")) for each in (best, numbers)] == [2, 1]
    assert best == {"N0": [4, 3], "N8": [2], "attn-split": [3]}
    for change, told in (({"settings": {**results["4"]["settings"], "lr": "1"}}, "lr 1"), ({"layers": 4}, "4 layers")):
        results["4"].update(layers=2)
        (tmp_path / "results.json").write_text(json.dumps({**results, "other": {**results["4"], **change}}))
        with pytest.raises(UserError, match=rf"other: N8 was trained with different settings \(.*{told}\); move"):
            persistent_memory.best_of_runs(read_runs(str(tmp_path)))


def test_state_tracking(tmp_path, monkeypatch):
    """At the best learning rate of each setting. What settings differ in is in their names, and a seed counts once."""
    common = {"title": "LSTM", "model": "lstm", "memory_composition": "weighted", "task": "word_problem"}
    common.update(longest=2, longest_good=1, sizes=[1, 2], accuracy=[1.0, 0.5], parameters=9, learned=2, group="A5")
    runs = []
    for seed, lr, longest, right in ((1, 0.1, "2", 0.5), (1, 0.2, "2", 0.9), (2, 0.2, "2", 0.7), (1, 0.2, "4", 0.1)):
        settings = {"model": "lstm", "longest": longest, "lr": str(lr)}
        runs.append({**common, "seed": seed, "lr": lr, "settings": settings, "valid_accuracy": right})
    runs[3].update(longest=4, sizes=[1, 2, 4], accuracy=[1.0, 0.5, 0.25], longest_good=2)  # as of --longest
    found = state_tracking.best_results([*runs, runs[1]])
    assert [(name, [(run["seed"], run["lr"]) for run in best]) for name, best in found.items()] == [
        ("LSTM, longest 4", [(1, 0.2)]),  # the best first
        ("LSTM, longest 2", [(1, 0.2), (2, 0.2)]),
    ]
    assert state_tracking.table(found)[2:] == [
        "| LSTM, longest 4 | 9 | 2 | 2 | 50.00 | 25.00 | 0.2 | 1 |",
        "| LSTM, longest 2 | 9 | 2 / 2 | 1 / 1 | 50.00 ± 0.00 | – | 0.2 | 2 |",
    ]
    monkeypatch.setattr(state_tracking, "read_results", lambda *_: dict(enumerate(runs)))
    state_tracking.main(str(tmp_path), "word_problem")
    assert (tmp_path / "accuracy.png").read_bytes().startswith(b"\x89PNG")


def test_a_tracker_that_no_recipe_trained(tmp_path):
    (tmp_path / "lstm").mkdir()
    (tmp_path / "lstm/result.json").write_text("{}")
    done = run_module("figures.state_tracking", tmp_path, "word_problem")
    assert "lstm: was not trained by the recipe; move it to another folder" in done.errors


def test_bad_input(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/results.json").write_text('{"walk": {"recipe": "random_walk", "model": "N3"}}')
    assert "no result of a model with persistent" in run_module("figures.persistent_memory", tmp_path).errors
    (tmp_path / "a/results.json").unlink()
    done = run_module("figures.persistent_memory", tmp_path)
    assert done.status == 2 and "has no results.json; give the output" in done.errors
    (line,) = done.errors.splitlines()
    assert line.startswith("python -m fb_fairseq.papers.figures.persistent_memory: error: ")
