"""Labelled streams through fairseq's commands: a model learns, accuracy is logged, chooses the best checkpoint, and is
evaluated by ``evaluate-labels``."""

import json
import shutil
from types import SimpleNamespace
from unittest import mock

import pytest
import torch

from fb_fairseq.commands import evaluate_labels, label_accuracy
from fb_fairseq.commands.label_accuracy import accuracy_by_position
from fb_fairseq.commands.plot.command import main as plot
from fb_fairseq.commands.read_model import read_language_model
from fb_fairseq.commands.texts import load_data
from fb_fairseq.errors import UserError
from fb_fairseq.papers.toy_tasks.common.command import main as make_task
from tests.cli.checkpoints import eval_lm, hub, interactive
from tests.cli.fairseq_commands import json_logs, preprocess, run, train
from tests.cli.own_commands import one_line


@pytest.fixture(scope="module")
def walks(tmp_path_factory):
    """Walks on 2 x 2 cells, 10 actions."""
    folder = tmp_path_factory.mktemp("walks")
    make_walks(folder, "--train", "300", "--valid", "30", "--test", "40")
    return folder / "bin"


def make_walks(folder, *numbers):
    make_task(["random_walk", "--out", str(folder), "--size", "2", "--steps", "10", *numbers])
    preprocess(folder, **SIDES)


SIDES = dict(source_lang="input", target_lang="label")
SETTING = dict(
    labels=True,
    max_update=150,
    tokens_per_sample=11,
    batch_size=10,
    lr=0.005,
    log_interval=10,
    best_checkpoint_metric="accuracy",
    maximize_best_checkpoint_metric=True,
    no_epoch_checkpoints=True,
)


@pytest.fixture(scope="module")
def trained(walks, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    return folder, train(walks, folder, **SETTING)


def evaluate(capsys, *arguments):
    evaluate_labels.main([str(argument) for argument in arguments])
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_accuracy(walks, trained, capsys, tmp_path, monkeypatch):
    """On the validation split it equals what training logged, whatever the length of blocks."""
    folder, log = trained
    logged = [float(entry["valid_accuracy"]) for entry in json_logs(log, "valid")]
    accuracy = [float(entry["accuracy"]) for entry in json_logs(log, "train_inner")]
    assert accuracy[-1] > accuracy[0] + 20, "it learns"
    checkpoint = folder / "checkpoint_best.pt"
    as_validation = ("--gen-subset", "valid", "--streams", 3, "--context-sequences", 0, "--cpu")
    found = evaluate(capsys, walks, "--path", checkpoint, *as_validation)
    assert found["accuracy"] == pytest.approx(max(logged), abs=0.006)
    assert found["labels"] == 300 and found["sequences"] == 30
    more = ("--out", tmp_path / "accuracy.json")
    monkeypatch.setattr(label_accuracy, "BLOCK", 4)
    other = evaluate(capsys, walks, "--path", checkpoint, *as_validation, *more)
    assert other == found
    assert json.loads((tmp_path / "accuracy.json").read_text()) == {"written_by": "evaluate-labels", **found}
    assert found["sequence_accuracy"] <= found["accuracy"]


def test_the_file_is_written_first(walks, trained, tmp_path, monkeypatch):
    """So a terminal that cannot show the result does not cost it."""
    monkeypatch.setattr("builtins.print", mock.Mock(side_effect=UnicodeEncodeError("ascii", "é", 0, 1, "not ASCII")))
    with pytest.raises(UnicodeEncodeError):
        arguments = [walks, "--path", trained[0] / "checkpoint_best.pt", "--cpu", "--out", tmp_path / "x.json"]
        evaluate_labels.main(list(map(str, arguments)))
    assert json.loads((tmp_path / "x.json").read_text())["labels"] > 0


def test_context(walks, tmp_path, capsys):
    """With a sequence of context, the number of streams has no effect: this Transformer sees only 2 · 4 steps back."""
    train(walks, tmp_path, **{**SETTING, "arch": "relative_transformer_lm", "attention_span": 4, "max_update": 60})
    arguments = (walks, "--path", tmp_path / "checkpoint_last.pt", "--cpu", "--streams")
    one = evaluate(capsys, *arguments, 1)
    assert evaluate(capsys, *arguments, 40) == evaluate(capsys, *arguments, 7) == one
    assert evaluate(capsys, *arguments, 40, "--context-sequences", 0) != one


def test_what_each_stream_reads_by_default(monkeypatch):
    """One sequence of context, as in training; or each sequence is a stream of its own."""
    found = []
    monkeypatch.setattr(
        label_accuracy, "judge_streams", lambda model, corpus, spans: found.append(spans) or torch.ones(1)
    )
    corpus = SimpleNamespace(ends=torch.tensor([3, 6, 9, 12]), path="")
    for separate in (False, True):
        label_accuracy.judge(SimpleNamespace(separate_sequences=separate), corpus, 2)
    assert found[0] == [(0, 0, 6), (3, 6, 12)]
    assert found[1:] == [[(0, 0, 3), (3, 3, 6)], [(6, 6, 9), (9, 9, 12)]]


def test_accuracy_by_position(walks, trained, capsys, tmp_path):
    """Over all positions it is the accuracy of evaluate-labels; ``</s>`` has no label."""
    checkpoint = str(trained[0] / "checkpoint_best.pt")
    found = evaluate(capsys, walks, "--path", checkpoint, "--cpu")
    loaded = read_language_model(checkpoint, str(walks), cpu=True)
    corpus = load_data(loaded, str(walks), "test")
    labels, correct = accuracy_by_position(loaded, corpus, 10**6)
    assert labels == [0] + [40] * 10
    assert 100 * sum(correct) / sum(labels) == pytest.approx(found["accuracy"])
    for tokens, sequences in ((30, 2), (1, 1)):  # whole ones, and at least one
        assert accuracy_by_position(loaded, corpus, tokens).labels == [0] + [sequences] * 10
    arguments = ["--position-accuracy", f"A={checkpoint}", "--attention", checkpoint, "--split", "test"]
    plot([*arguments, "--data", str(walks), "--cpu", "--tokens", "200", "--out", str(tmp_path / "positions.png")])
    assert (tmp_path / "positions.png").read_bytes().startswith(b"\x89PNG")


def test_bad_input(walks, trained, byte_data, tmp_path, capsys):
    folder, _ = trained
    checkpoint = folder / "checkpoint_best.pt"
    with pytest.raises(UserError, match="fairseq-eval-lm scores the next symbol.*use .* evaluate-labels"):
        eval_lm(walks, checkpoint, labels=True, gen_subset="test")
    with pytest.raises(UserError, match="dict.input.txt: no such file; --labels needs data of fairseq-preprocess"):
        train(byte_data, tmp_path / "a", **SETTING)
    with pytest.raises(UserError, match="--share-decoder-input-output-embed: inputs and labels"):
        train(walks, tmp_path / "b", **SETTING, share_decoder_input_output_embed=True)
    wrong = walks, "--path", checkpoint, "--gen-subset", "other", "--cpu"
    assert "the split is missing" in one_line(capsys, evaluate_labels.main, *wrong)


@pytest.fixture(scope="module")
def tracker(tmp_path_factory):
    """The shipped tracker as a checkpoint, and sequences of its own dictionaries."""
    pytest.importorskip("transformers")
    from fb_fairseq.commands.import_transformers import main as import_transformers

    folder = tmp_path_factory.mktemp("tracker")
    import_transformers(["a5", "--out", str(folder / "a5.pt")])
    numbers = ["--length", "12", "--train", "9", "--valid", "9", "--test", "30"]
    make_task(["word_problem", "--group", "A5", "--out", str(folder / "text"), *numbers])
    preprocess(folder / "text", **SIDES, srcdict=folder / "dict.input.txt", tgtdict=folder / "dict.label.txt")
    return folder / "a5.pt", folder / "text/bin"


def test_sequences_are_read_as_in_training(tracker, capsys, tmp_path):
    """The tracker has learned single sequences; one after the other, its products would go on."""
    path, data = tracker
    right = evaluate(capsys, data, "--path", path, "--cpu")
    assert right == {"accuracy": 100.0, "sequence_accuracy": 100.0, "labels": 360, "sequences": 30}
    assert evaluate(capsys, data, "--path", path, "--cpu", "--streams", 7) == right
    for context in (0, 1):
        joined = evaluate(capsys, data, "--path", path, "--cpu", "--streams", 2, "--context-sequences", context)
        assert joined["accuracy"] < 30
    loaded = read_language_model(str(path), str(data), cpu=True)
    found = accuracy_by_position(loaded, load_data(loaded, str(data), "test"), 10**6)
    assert found.correct == found.labels == [0] + [30] * 12
    drawn = [path, "--data", data, "--split", "test", "--cpu", "--out", tmp_path / "a.png"]
    for option, told in (
        ("--attention", "reads each sequence with an empty memory; give one with --prompt"),
        ("--context-perplexity", "was trained with --labels; use --position-accuracy"),
    ):
        assert told in one_line(capsys, plot, option, *drawn)
    with pytest.raises(UserError, match="the model reads each sequence with an empty memory.*use .* evaluate-labels"):
        run("validate", data, "--task", "streaming_lm", "--path", path, "--cpu", "--valid-subset", "test")


def test_labels_are_not_taken_for_the_next_symbol(tracker, tmp_path):
    """Where the folder has a dict.txt, too, so that fairseq's commands could begin."""
    path, data = tracker
    shutil.copytree(data, tmp_path / "data")
    shutil.copy(data / "dict.input.txt", tmp_path / "data/dict.txt")
    for command in (
        lambda: eval_lm(tmp_path / "data", path, gen_subset="test"),
        lambda: interactive(tmp_path / "data", path, tmp_path, ["12345"], "--beam", 1),
        lambda: hub(path, tmp_path / "data").sample("12345"),
    ):
        with pytest.raises(UserError, match="labels.*use fb-fairseq evaluate-labels"):
            command()
