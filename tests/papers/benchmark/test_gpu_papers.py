"""examples/benchmark/gpu_papers.sh and its modules: trainings within budgets, that go on, and their page."""

import argparse
import importlib
import json
import os
import subprocess
import sys

import pytest

from fb_fairseq.papers.values import load
from tests.conftest import REPOSITORY

FOLDER = REPOSITORY / "examples/benchmark"

# In place of fairseq-train: its log, a checkpoint with the number of updates, and an accuracy that grows.
MADE_UP = """
import json, pathlib, sys, time
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
checkpoint = pathlib.Path(options["--save-dir"], "checkpoint_last.pt")
first = json.loads(checkpoint.read_text())["updates"] if checkpoint.exists() else 0
limit = float(options["--stop-time-hours"]) * 3600
print("model params: num. shared model params: 1,234 (num. trained: 1,234)")
print("x | INFO | fairseq_cli.train | Start iterating over samples", flush=True)
last = min(first + 20, int(options["--max-update"]))
for updates in range(first + 5, last + 1, 5):
    values = {"loss": "1.5", "accuracy": str(updates / 10), "num_updates": str(updates)}
    print("x | INFO | train_inner | " + json.dumps(values), flush=True)
print('x | INFO | fairseq_cli.train | begin validation on "valid" subset', flush=True)
time.sleep(0.2)
valid = {"valid_loss": "1.4", "valid_accuracy": str(last), "valid_num_updates": str(last)}
print("x | INFO | valid | " + json.dumps(valid), flush=True)
checkpoint.parent.mkdir(exist_ok=True)
checkpoint.write_text(json.dumps({"updates": last, "limit": limit, "most": int(options["--max-update"])}))
"""


@pytest.fixture
def papers(monkeypatch):
    """The modules."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("gpu_papers")


@pytest.fixture
def made_up(papers, monkeypatch, tmp_path):
    """With made-up trainings and one measurement; runs the script, and returns its status and ``results.json``."""
    (tmp_path / "made_up.py").write_text(MADE_UP)
    (tmp_path / "speed.py").write_text("print('first call, 1 of 1', 'words/s 7', '{\"speed\": 7}', sep='\\n')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    measuring = importlib.import_module("measuring")
    monkeypatch.setattr(measuring, "READY", measuring.READY.replace("importlib.import_module(name)", "pass"))
    monkeypatch.setattr(papers.Task, "data", lambda task, folder, args: [["true"]])
    size = ["--batch-size", "4", "--tokens-per-sample", "8"]

    def command(self, task, model, more):
        return [sys.executable, "-m", "made_up", *size, *papers.words(more)]

    def reached(checkpoint):
        return json.loads(checkpoint.read_text())["updates"], 3600.0

    monkeypatch.setattr(papers.Papers, "command", command)
    monkeypatch.setattr(papers, "reached", reached)
    speed = papers.Speed("blocks", 1, papers.Measurement("A speed", [sys.executable, "-m", "speed"]))
    monkeypatch.setattr(papers, "speeds", lambda args: [speed])

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["gpu_papers.py", "--cpu", "--out", str(tmp_path / "out"), *arguments])
        status = papers.main()
        return status, json.loads((tmp_path / "out/results.json").read_text())

    return run


def test_runs_go_on(made_up, papers, tmp_path, monkeypatch):
    """Twice, the second time on another machine, which has the parts of one checkpoint only."""
    monkeypatch.setattr(papers, "PART", 40)
    status, first = made_up("--minutes", "1", "--keep-checkpoints", "walk-feedback", "--work", str(tmp_path / "here"))
    assert status == 0 and set(first["trainings"]) == {"walk", "library", "algorithmic"}
    parts = sorted(path.name for path in (tmp_path / "out").glob("*.part-*"))
    assert len(parts) > 1 and parts[:2] == ["walk-feedback.part-000", "walk-feedback.part-001"]
    assert all((tmp_path / "out" / part).stat().st_size <= 40 for part in parts)
    page = (tmp_path / "out/page.md").read_text(encoding="utf-8")
    assert "did not fit\n\nNone." in page and "```\nwords/s 7\n```" in page and "![Learning curves" in page
    assert (tmp_path / "out/curves.png").stat().st_size > 1000
    row = next(line for line in page.splitlines() if line.startswith("| Feedback Transformer | 1,234 | 20 | 640 |"))
    assert row.endswith("| 20.0 | 20.0 | 20.0 | – |")

    status, second = made_up("--minutes", "1", "--work", str(tmp_path / "there"))
    points = {
        model: [point[1] for point in training["points"]] for model, training in second["trainings"]["walk"].items()
    }
    assert points == {"feedback": [5, 10, 15, 20, 20, 25, 30, 35, 40, 40], "transformer": [5, 10, 15, 20, 20]}
    training = second["trainings"]["walk"]["feedback"]
    seconds = [point[2] for point in training["points"]]
    assert seconds == sorted(seconds) and [run["from_update"] for run in training["runs"]] == [0, 20]
    assert second["benchmarks"]["A speed"] == first["benchmarks"]["A speed"], "it is not repeated"


def test_budgets(made_up, papers, tmp_path):
    """Shares of what is left; the second model of text is trained for as many updates as the first."""
    made_up("--minutes", "2")
    trained = {
        path.parent.name: json.loads(path.read_text()) for path in (tmp_path / "out/work").glob("*/checkpoint_last.pt")
    }
    assert len(trained) == 6 and trained["walk-transformer"]["most"] == 10_000
    assert trained["library-transformer"]["most"] == trained["library-feedback"]["updates"] == 20
    assert trained["walk-feedback"]["limit"] == pytest.approx(120 * 6 / 34 - papers.STARTING, abs=3)
    assert trained["algorithmic-transformer"]["limit"] > 60, "what others have left"


def test_no_time(made_up, papers, tmp_path):
    """What has not run is on the page; and the results of models and tiny ones are not mixed."""
    assert made_up("--minutes", "0.0001")[0] == 0
    page = (tmp_path / "out/page.md").read_text(encoding="utf-8")
    assert "- Random walk on 8 x 8 cells: Feedback Transformer: not run, the time was up" in page
    args = argparse.Namespace(cpu=False, ptb=None, out=tmp_path / "out", work=tmp_path, minutes=1, only="")
    with pytest.raises(papers.UserError, match="has results of --cpu; choose another folder"):
        papers.Papers(args)


def test_only(made_up, capsys):
    _, found = made_up("--only", "blocks walk")
    assert list(found["trainings"]) == ["walk"] and list(found["benchmarks"]) == ["A speed"]
    with pytest.raises(SystemExit):
        made_up("--only", "nosuch")
    assert "--only nosuch: unknown; choose from walk library algorithmic blocks\n" in capsys.readouterr().err


def test_points(papers):
    """Time without validation; and a log that goes on."""
    lines = [
        (1.0, "train_inner | {} before the first update"),
        (2.0, "| INFO | fairseq_cli.train | Start iterating over samples"),
        (3.0, '| train_inner | {"loss": "2.5", "num_updates": "10"}'),
        (3.5, "begin validation on"),
        (7.5, '| valid | {"valid_loss": "2.25", "valid_num_updates": "15"}'),
        (8.5, '| train_inner | {"loss": "2.0", "num_updates": "20"}'),
    ]
    found = [tuple(point) for point in papers.papers_page.points(lines, "loss", 10.0)]
    assert found == [("train", 10, 11.0, 2.5), ("valid", 15, 11.5, 2.25), ("train", 20, 12.5, 2.0)]


def test_both_models(papers):
    """Beside each other at the last validation that both have, and after as many seconds."""
    curves = {
        "feedback": [("train", 5, 0.4, 9.0), ("valid", 10, 1.0, 3.0), ("valid", 20, 2.0, 2.5), ("valid", 23, 2.3, 2.4)],
        "transformer": [("valid", 10, 0.5, 3.1), ("valid", 20, 1.0, 2.7), ("valid", 30, 1.5, 2.6)],
    }
    about = {"parameters": 1000, "tokens_per_update": 8, "runs": [{"from_update": 0}]}
    (_, task, _) = papers.tasks(ptb=None)
    trainings = {model: {**about, "points": points} for model, points in curves.items()}
    heading, _, *rows = papers.papers_page.table(task, trainings, {"transformer": 2.0})
    assert "| both after 20 updates | both after 2 s |" in heading
    assert rows == [
        "| Feedback Transformer | 1,000 | 23 | 184 | 2 | – | 2.400 | 2.500 | 3.000 | – |",
        "| Transformer | 1,000 | 30 | 240 | 2 | – | 2.600 | 2.700 | 2.600 | 2 |",
    ]


def test_settings_are_the_papers(papers, tmp_path):
    """Sizes of v3 Table 9, and the streams of toy tasks."""
    columns = load("hyperparameters")["v3 Table 9"]["columns"]
    for task in papers.tasks(ptb=tmp_path):
        column = columns["random walk" if task.recipe else "char-PTB"]
        for model in papers.ARCHITECTURES:
            options, _ = task.options(model)
            assert options["tokens_per_sample"] == column["block"]
            if task.recipe:
                names = dict(decoder_layers="layers", decoder_embed_dim="width", attention_span="span")
                assert {name: options[name] for name in names} == {name: column[key] for name, key in names.items()}
                assert options["batch_size"] == column["streams"]
            else:
                assert options["arch"].endswith("_char_ptb")
    assert papers.figures_of_papers(papers.tasks(ptb=tmp_path))["walk"] == {"transformer": 68, "feedback": 100}


@pytest.mark.parametrize("cpu", [True, False])
def test_options_of_speeds(papers, tmp_path, monkeypatch, cpu):
    """They exist; Table 5's tasks are measured one by one."""
    from fb_fairseq.papers.benchmark.command import parse

    monkeypatch.setattr(papers.torch.cuda, "is_available", lambda: True)
    found = papers.speeds(argparse.Namespace(cpu=cpu, out=tmp_path))
    for speed in found:
        parse(speed.measurement.command[speed.measurement.command.index("benchmark") + 1 :])
    assert [speed.key for speed in found] == ["blocks", "lm", "rl", "translation"]


def test_ptb(papers, tmp_path):
    """Only the published files."""
    (_, task, _) = papers.tasks(ptb=tmp_path)
    args = argparse.Namespace(cpu=False, ptb=tmp_path)
    with pytest.raises(papers.UserError, match="no ptb.train.txt or ptb.train.txt.gz in this folder"):
        task.data(tmp_path, args)
    (tmp_path / "ptb.train.txt").write_text("another text")
    with pytest.raises(papers.UserError, match="12 bytes, md5 .* has 5101618 bytes"):
        task.data(tmp_path, args)


@pytest.mark.slow
def test_on_the_cpu(tmp_path):
    """The whole script, as a user would try it."""
    environment = {**os.environ, "FB_FAIRSEQ_VENV": sys.prefix}
    command = ["bash", str(FOLDER / "gpu_papers.sh"), "--cpu", "--out", "out", "--minutes", "3"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    text = (tmp_path / "out/page.md").read_text(encoding="utf-8")
    for part in ("Random walk on 8 x 8 cells", "Algorithmic task", "Time of a batch against block length"):
        assert f"## {part}" in text
    assert {"curves.png", "block_length.png", "results.json"} <= {path.name for path in (tmp_path / "out").iterdir()}
