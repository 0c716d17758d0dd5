"""No command replaces or removes a file of the user's, nor one that was changed since; it replaces its own files."""

import json
import shutil

import pytest
import torch

from fb_fairseq.commands import average_checkpoints, evaluate_labels, import_transformers, preprocess_bytes
from fb_fairseq.commands.export import command as export
from fb_fairseq.commands.plot import command as plot
from fb_fairseq.papers.import_original import command as import_original
from fb_fairseq.papers.state_tracking import command as state_tracking
from fb_fairseq.papers.toy_tasks.common import command as synthetic_tasks
from tests.cli.own_commands import one_line


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
    path.write_bytes(foreign)
    refused(capsys, command, option, path, *arguments)
    command([*arguments, "--overwrite"])
    assert path.read_bytes() != foreign


def test_data(tmp_path, capsys):
    (tmp_path / "text").write_bytes(bytes(range(200)) * 5)
    for command, option, arguments, name in (
        (preprocess_bytes.main, "--destdir", ["--text", tmp_path / "text"], "dict.txt"),
        (synthetic_tasks.main, "--out", ["copy", "--train", 3, "--valid", 3, "--test", 3], "train.input"),
    ):
        out = tmp_path / f"out{option}"
        out.mkdir()
        (out / "mine").write_text("mine")
        replaces_its_own(capsys, command, option, out / name, b"mine", *arguments, option, out)
        assert (out / "mine").read_text() == "mine"


def test_export_and_import(language_models, tmp_path, capsys):
    pytest.importorskip("transformers")
    checkpoint, folder = language_models["feedback_transformer_lm"], tmp_path / "model"
    command = [str(checkpoint), "--to", str(folder)]
    folder.mkdir()
    for name in ("README.md", "target/data"):
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("mine")
        line = one_line(capsys, export.main, *command)
        assert f"--to {folder}: has files that this command has not written; give an empty folder, or --overw" in line
        assert file.read_text() == "mine" and len(list(folder.iterdir())) == 1
        shutil.rmtree(file.parent)
        folder.mkdir(exist_ok=True)
    export.main([*command, "--with-code"])
    assert list(folder.glob("*.py"))
    (folder / "target").mkdir()
    (folder / "target/data").write_text("mine")
    export.main(command)
    assert not list(folder.glob("*.py")), "those of the earlier export"
    (folder / "README.md").write_text("mine")
    refused(capsys, export.main, "--to", folder / "README.md", *command)
    export.main([*command, "--overwrite"])
    assert (folder / "README.md").read_text() != "mine" and (folder / "target/data").read_text() == "mine"

    out = tmp_path / "imported/model.pt"
    out.parent.mkdir()
    replaces_its_own(capsys, import_transformers.main, "--out", out, checkpoint.read_bytes(), folder, "--out", out)


def test_checkpoints(language_models, tmp_path, capsys):
    path, out = language_models["feedback_transformer_lm"], tmp_path / "averaged.pt"
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
    out.write_text('{"mine": 1}')
    refused(capsys, evaluate_labels.main, "--out", out, "nothing", "--path", "nothing.pt", "--out", out)
    refused(capsys, state_tracking.main, "--out", out, "speed", "--out", out)
    out.write_text(json.dumps(evaluate_labels.Accuracy(1.0, 1.0, 1, 1)._asdict()))
    assert "nothing" in one_line(capsys, evaluate_labels.main, "nothing", "--path", "nothing.pt", "--out", out)


def test_runs(tmp_path, capsys):
    """A folder of a run is new, or has the lock of one."""
    (tmp_path / "result.json").write_text("mine")
    line = one_line(capsys, state_tracking.main, "train", "--updates", 1, "--out", tmp_path)
    assert line.endswith(f"--out {tmp_path}: has files that this command has not written; give an empty folder")
    pytest.importorskip("gymnasium")
    from fb_fairseq.papers.rl import command as rl

    (tmp_path / "log.jsonl").write_text("mine")
    line = one_line(capsys, rl.main, "train", "--small", "--frames", 64, "--out", tmp_path)
    assert line.endswith(f"--out {tmp_path}: has files that this command has not written; give an empty folder")
    assert (tmp_path / "log.jsonl").read_text() == "mine"
    result = tmp_path / "result.json"
    refused(capsys, rl.main, "--out", result, "evaluate", "--path", "nothing.pt", "--out", result)
    picture = tmp_path / "a.png"
    picture.write_text("mine")
    refused(capsys, rl.main, "--record", picture, "evaluate", "--path", "nothing.pt", "--record", picture)
