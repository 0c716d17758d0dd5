"""No command replaces or removes a file of the user's, nor one that was changed since; it replaces its own files."""

import filecmp
import shutil

import pytest
import torch

from fb_fairseq.commands import average_checkpoints, evaluate_labels, import_transformers, preprocess_bytes
from fb_fairseq.commands.export import command as export
from fb_fairseq.commands.plot import command as plot
from fb_fairseq.files import write_json
from fb_fairseq.papers.import_original import command as import_original
from fb_fairseq.papers.rl import command as rl
from fb_fairseq.papers.state_tracking import command as state_tracking
from fb_fairseq.papers.toy_tasks.common import command as synthetic_tasks
from tests.cli.own_commands import one_line
from tests.surroundings import next_tick


def refused(capsys, main, arguments, option, path):
    """A command with these arguments names the option, the file and the remedy, and leaves the file as it is."""
    before = path.read_bytes()
    line = one_line(capsys, main, *arguments)
    assert f"{option} {path}: this command has not written it" in line and line.endswith("or --overwrite"), line
    assert path.read_bytes() == before


def replaces_its_own(capsys, main, arguments, option, path, foreign: bytes):
    """A command replaces the file that it has written, not a foreign one in its place, unless it is told to.

    Args:
        main: the command, which writes the file ``path``.
        arguments: its arguments.
        option: that of its arguments which the error names.
        foreign: what the user's file holds.
    """
    arguments = [*map(str, arguments)]
    for _ in range(2):
        main(arguments)
    next_tick()
    path.write_bytes(foreign)
    refused(capsys, main, arguments, option, path)
    main([*arguments, "--overwrite"])
    assert path.read_bytes() != foreign


SIZES = ["--train", 3, "--valid", 3, "--test", 3]


@pytest.mark.parametrize(
    "main,option,arguments,name,others",
    [
        (
            preprocess_bytes.main,
            "--destdir",
            ["--text", "text"],
            "dict.txt",
            [["--text", "other"], ["--text", "text", "--split", "8,1,1"], ["--trainpref", "text"]],
        ),
        (
            synthetic_tasks.main,
            "--out",
            ["copy", *SIZES],
            "train.input",
            [["copy", *SIZES, "--seed", 2], ["reverse", *SIZES], ["copy", *SIZES[:-1], 4]],
        ),
    ],
    ids=("preprocess-bytes", "synthetic-tasks"),
)
def test_data(tmp_path, monkeypatch, capsys, main, option, arguments, name, others):
    """The same data may be written again; what they are made from, and all other files, stay.

    ``main`` writes a file ``name`` of data from ``arguments``, and other data from each of ``others``.
    """
    monkeypatch.chdir(tmp_path)
    for text in ("text", "other"):
        (tmp_path / text).write_bytes(bytes(range(len(text), 200)) * 5)
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").write_text("mine")
    line = one_line(capsys, main, *arguments, option, out)
    assert line.endswith(
        f"{option} {out}: has files that this command has not written; give a new or empty folder, or --overwrite"
    )
    (out / "mine").unlink()
    replaces_its_own(capsys, main, [*arguments, option, out], option, out / name, foreign=b"mine")
    (out / "bin").mkdir()
    (out / "bin/mine").write_text("mine")  # as of fairseq-preprocess --destdir walk/bin
    main([*map(str, arguments), option, str(out)])
    before = (out / name).read_bytes()
    for other in others:
        line = one_line(capsys, main, *other, option, out)
        assert f"{option} {out}: has what this command has made from other data or options; give a new" in line
    assert (out / name).read_bytes() == before
    assert (out / "bin/mine").read_text() == "mine"


def test_export(language_models, tmp_path, capsys):
    pytest.importorskip("transformers")
    folder = tmp_path / "model"
    command = [str(language_models["feedback_transformer_lm"]), "--to", str(folder)]
    for name in ("README.md", "target/data"):
        file = folder / name
        file.parent.mkdir(parents=True)
        file.write_text("mine")
        line = one_line(capsys, export.main, *command)
        assert f"--to {folder}: has files that this command has not written; give a new or empty folder, or --o" in line
        assert file.read_text() == "mine" and len(list(folder.iterdir())) == 1
        shutil.rmtree(folder)
    for _ in range(2):
        export.main(command)
    next_tick()
    weights = folder / "model-00001-of-00002.safetensors"  # transformers might read these instead
    for file in (folder / "README.md", weights):
        file.write_text("mine")
        refused(capsys, export.main, command, "--to", file)
        export.main([*command, "--overwrite"])
    assert (folder / "README.md").read_text() != "mine"
    assert weights.read_text() == "mine"
    weights.unlink()
    (folder / "target").mkdir()
    line = one_line(capsys, export.main, *command, "--overwrite")
    assert f"--to {folder / 'target'}: this model has no second tokenizer; remove it, or give another folder" in line


def test_import(language_models, byte_data, tmp_path, capsys):
    """The dictionary of the user's data, with how often each symbol occurs, stays beside the imported model."""
    pytest.importorskip("transformers")
    checkpoint = language_models["feedback_transformer_lm"]
    export.main([str(checkpoint), "--to", str(tmp_path / "model")])
    out = tmp_path / "imported/model.pt"
    out.parent.mkdir()
    dictionary = shutil.copy(byte_data / "dict.txt", out.parent)
    arguments = [tmp_path / "model", "--out", out]
    replaces_its_own(capsys, import_transformers.main, arguments, "--out", out, foreign=checkpoint.read_bytes())
    assert filecmp.cmp(dictionary, byte_data / "dict.txt", shallow=False)


def test_checkpoints(language_models, tmp_path, capsys):
    path = language_models["feedback_transformer_lm"]
    out = tmp_path / "averaged.pt"
    arguments = ["--inputs", path, "--output", out]
    replaces_its_own(capsys, average_checkpoints.main, arguments, "--output", out, foreign=path.read_bytes())
    average_checkpoints.main(["--inputs", str(out), "--output", str(out)])
    assert next(iter(torch.load(out, weights_only=False).items())) == ("written_by", "average-checkpoints")
    arguments = ["nothing.pt", "--dict", "nothing", "--out", out]  # refused before they are read
    refused(capsys, import_original.main, arguments, "--out", out)


def test_figures_and_results(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    log = tmp_path / "log"
    log.write_text('{"num_updates": "1", "loss": "3"}\n{"num_updates": "2", "loss": "2"}\n')
    for name in ("a.png", "a.pdf", "a.svg"):
        arguments = ["--curves", log, "--out", tmp_path / name]
        replaces_its_own(capsys, plot.main, arguments, "--out", tmp_path / name, foreign=b"mine")
    out = tmp_path / "result.json"
    arguments = ["nothing", "--path", "nothing.pt", "--out", out]
    out.write_text('{"accuracy": 0.9}')
    refused(capsys, evaluate_labels.main, arguments, "--out", out)
    write_json(str(out), "evaluate-labels", {"accuracy": 1.0})
    assert "nothing" in one_line(capsys, evaluate_labels.main, *arguments)


RUNS = {
    "state-tracking": (
        state_tracking.main,
        "train --updates 1 --width 16 --longest 4 --test-sequences 9 --out".split(),
    ),
    "rl": (rl.main, "train --small --cpu --frames 64 --out".split()),
}


@pytest.mark.parametrize("main,train", RUNS.values(), ids=RUNS)
def test_runs(tmp_path, capsys, main, train):
    """A folder of a run is new, or was made by the same command; one of the user's files may be added to it."""
    (tmp_path / "result.json").write_text("mine")
    (tmp_path / ".lock").write_text("process 1 on a machine")  # several commands write this file
    line = one_line(capsys, main, *train, tmp_path)
    assert line.endswith(f"--out {tmp_path}: has files that this command has not written; give an empty folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "result.json"]
    run = tmp_path / "run"
    main([*train, str(run)])
    (run / "mine").write_text("mine")
    main([*train, str(run)])
    for mark in run.glob(".fb_fairseq-*"):  # an earlier version has left none
        mark.unlink()
    main([*train, str(run)])
    assert (run / "mine").read_text() == "mine"


@pytest.mark.parametrize("main,train", RUNS.values(), ids=RUNS)
def test_checkpoints_are_read_under_the_lock(tmp_path, capsys, main, train):
    (tmp_path / "checkpoint.pt").touch()
    assert "checkpoint.pt: " in one_line(capsys, main, *train, tmp_path) and (tmp_path / ".lock").exists()


def test_a_run_of_another_command_is_no_place(tmp_path, capsys):
    for name, (main, train) in RUNS.items():
        main([*train, str(tmp_path / name)])
    for name, (main, train) in RUNS.items():
        (other,) = (tmp_path / other for other in RUNS if other != name)
        before = sorted(other.iterdir())
        line = one_line(capsys, main, *train, other)
        assert "checkpoint.pt: not a checkpoint of " in line and sorted(other.iterdir()) == before


def test_result_of_an_evaluation(tmp_path, capsys):
    result = tmp_path / "result.json"
    result.write_text('{"reward": 1}')
    refused(capsys, rl.main, ["evaluate", "--path", "nothing.pt", "--out", result], "--out", result)
