"""No command replaces or removes a file of the user's, nor one that was changed since; it replaces its own files."""

import shutil

import pytest
import torch

from fb_fairseq.commands import average_checkpoints, evaluate_labels, import_transformers, preprocess_bytes
from fb_fairseq.commands.export import command as export
from fb_fairseq.commands.plot import command as plot
from fb_fairseq.files import write_json
from fb_fairseq.papers.import_original import command as import_original
from fb_fairseq.papers.state_tracking import command as state_tracking
from fb_fairseq.papers.toy_tasks.common import command as synthetic_tasks
from tests.cli.own_commands import one_line
from tests.surroundings import next_tick


def refused(capsys, command, option, path, *arguments):
    """The command names the file, the option and the remedy, and leaves the file as it is."""
    before = path.read_bytes()
    line = one_line(capsys, command, *arguments)
    assert f"{option} {path}: this command has not written it" in line and line.endswith("or --overwrite"), line
    assert path.read_bytes() == before


def replaces_its_own(capsys, command, option, path, foreign, *arguments):
    """A command replaces its own file, not what a user has put in its place, unless it is told to."""
    arguments = [*map(str, arguments)]
    for _ in range(2):
        command(arguments)
    next_tick()
    path.write_bytes(foreign)
    refused(capsys, command, option, path, *arguments)
    command([*arguments, "--overwrite"])
    assert path.read_bytes() != foreign


def test_data(tmp_path, capsys):
    """The same data may be written again; what they are made from, and all other files, stay."""
    for name in ("text", "other"):
        (tmp_path / name).write_bytes(bytes(range(len(name), 200)) * 5)
    text, sizes = ["--text", tmp_path / "text"], ["--train", 3, "--valid", 3, "--test", 3]
    for command, option, arguments, name, others in (
        (
            preprocess_bytes.main,
            "--destdir",
            text,
            "dict.txt",
            (["--text", tmp_path / "other"], [*text, "--split", "8,1,1"], ["--trainpref", tmp_path / "text"]),
        ),
        (
            synthetic_tasks.main,
            "--out",
            ["copy", *sizes],
            "train.input",
            (["copy", *sizes, "--seed", 2], ["reverse", *sizes], ["copy", *sizes[:-1], 4]),
        ),
    ):
        out = tmp_path / f"out{option}"
        out.mkdir()
        (out / "mine").write_text("mine")
        line = one_line(capsys, command, *arguments, option, out)
        assert line.endswith(
            f"{option} {out}: has files that this command has not written; give a new or empty folder, or --overwrite"
        )
        (out / "mine").unlink()
        replaces_its_own(capsys, command, option, out / name, b"mine", *arguments, option, out)
        (out / "bin").mkdir()
        (out / "bin/mine").write_text("mine")  # as of fairseq-preprocess --destdir walk/bin
        command([*map(str, arguments), option, str(out)])
        before = (out / name).read_bytes()
        for other in others:
            line = one_line(capsys, command, *other, option, out)
            assert f"{option} {out}: has what this command has made from other data or options; give a new" in line
        assert (out / name).read_bytes() == before and (out / "bin/mine").read_text() == "mine"


def test_export_and_import(language_models, tmp_path, capsys):
    pytest.importorskip("transformers")
    checkpoint = language_models["feedback_transformer_lm"]
    folder = tmp_path / "model"
    command = [str(checkpoint), "--to", str(folder)]
    folder.mkdir()
    for name in ("README.md", "target/data"):
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("mine")
        line = one_line(capsys, export.main, *command)
        assert f"--to {folder}: has files that this command has not written; give a new or empty folder, or --o" in line
        assert file.read_text() == "mine" and len(list(folder.iterdir())) == 1
        shutil.rmtree(file.parent)
        folder.mkdir(exist_ok=True)
    for _ in range(2):
        export.main(command)
    next_tick()
    for name in ("README.md", "model-00001-of-00002.safetensors"):  # an edited card; weights that may win
        (folder / name).write_text("mine")
        refused(capsys, export.main, "--to", folder / name, *command)
        export.main([*command, "--overwrite"])
    assert (folder / "README.md").read_text() != "mine" and (folder / name).read_text() == "mine"
    (folder / name).unlink()
    (folder / "target").mkdir()
    line = one_line(capsys, export.main, *command, "--overwrite")
    assert f"--to {folder / 'target'}: this model has no second tokenizer; remove it, or give another folder" in line
    (folder / "target").rmdir()

    out = tmp_path / "imported/model.pt"
    out.parent.mkdir()
    replaces_its_own(capsys, import_transformers.main, "--out", out, checkpoint.read_bytes(), folder, "--out", out)


def test_checkpoints(language_models, tmp_path, capsys):
    path = language_models["feedback_transformer_lm"]
    out = tmp_path / "averaged.pt"
    arguments = ["--inputs", path, "--output", out]
    replaces_its_own(capsys, average_checkpoints.main, "--output", out, path.read_bytes(), *arguments)
    average_checkpoints.main(["--inputs", str(out), "--output", str(out)])
    assert next(iter(torch.load(out, weights_only=False).items())) == ("written_by", "average-checkpoints")
    text = ["--dict", "nothing", "--out", out]  # refused before it is read
    refused(capsys, import_original.main, "--out", out, "nothing.pt", *text)


def test_figures_and_results(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    log = tmp_path / "log"
    log.write_text('{"num_updates": "1", "loss": "3"}\n{"num_updates": "2", "loss": "2"}\n')
    for name in ("a.png", "a.pdf", "a.svg"):
        arguments = ["--curves", log, "--out", tmp_path / name]
        replaces_its_own(capsys, plot.main, "--out", tmp_path / name, b"mine", *arguments)
    out = tmp_path / "result.json"
    for mine in ('{"mine": 1}', '{"accuracy": 0.9}', '{"hardware": "a laptop"}'):
        out.write_text(mine)
        refused(capsys, evaluate_labels.main, "--out", out, "nothing", "--path", "nothing.pt", "--out", out)
        write_json(str(out), "evaluate-labels", {"accuracy": 1.0})
    assert "nothing" in one_line(capsys, evaluate_labels.main, "nothing", "--path", "nothing.pt", "--out", out)


def test_runs(tmp_path, capsys):
    """A folder of a run is new, or has the mark of the same command: the lock is of several."""
    from fb_fairseq.papers.rl import command as rl

    small = {
        "state-tracking": (state_tracking.main, "train --updates 1 --width 16 --longest 4 --test-sequences 9 --out"),
        "rl": (rl.main, "train --small --cpu --frames 64 --out"),
    }
    for name, (train, words) in small.items():
        (tmp_path / "result.json").write_text("mine")
        (tmp_path / ".lock").write_text("process 1 on a machine")
        line = one_line(capsys, train, *words.split(), tmp_path)
        assert line.endswith(f"--out {tmp_path}: has files that this command has not written; give an empty folder")
        assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [".lock", "result.json"]
        run = tmp_path / name
        train([*words.split(), str(run)])
        (run / "mine").write_text("mine")
        train([*words.split(), str(run)])
        for mark in run.glob(".fb_fairseq-*"):  # an earlier version has left none
            mark.unlink()
        train([*words.split(), str(run)])
        assert (run / "mine").read_text() == "mine"
    for name, (train, words) in small.items():
        for other in small.keys() - {name}:
            before = sorted((tmp_path / other).iterdir())
            line = one_line(capsys, train, *words.split(), tmp_path / other)
            assert "checkpoint.pt: not a checkpoint of " in line and sorted((tmp_path / other).iterdir()) == before
            (tmp_path / other / "checkpoint.pt").unlink()
            line = one_line(capsys, train, *words.split(), tmp_path / other)
            assert "has files that this command has not written" in line
    result = tmp_path / "result.json"
    result.write_text('{"reward": 1}')
    refused(capsys, rl.main, "--out", result, "evaluate", "--path", "nothing.pt", "--out", result)
