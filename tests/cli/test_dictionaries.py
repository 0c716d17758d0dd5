"""Data of another dictionary of the same size: every command refuses it, as the words would stand for others."""

import pytest
import torch

from fb_fairseq.commands.average_checkpoints import main as average
from fb_fairseq.commands.export.command import main as export
from fb_fairseq.commands.read_model import read_language_model
from fb_fairseq.errors import UserError
from tests.cli import parallel_text
from tests.cli.checkpoints import eval_lm, interactive
from tests.cli.fairseq_commands import preprocess, run, train
from tests.cli.own_commands import one_line
from tests.conftest import on_ci

REFUSED = "was trained with another source dictionary than that of the data: other symbols.*--srcdict"


def data_of(folder, words):
    """Binarise four lines, in which each of these words stands three times in a row; the dictionary has them in their
    order. Returns the folder of the data."""
    for split in ("train", "valid", "test"):
        (folder / split).parent.mkdir(exist_ok=True)
        (folder / split).write_text((" ".join(word for word in words for _ in range(3)) + "\n") * 4)
    (folder / "dict.txt").write_text("".join(f"{word} 9\n" for word in words))
    return preprocess(folder, only_source=True, srcdict=folder / "dict.txt")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A checkpoint, its data, and data of a dictionary with the same words in another order."""
    folder = tmp_path_factory.mktemp("dictionaries")
    one, other = (data_of(folder / name, words) for name, words in (("one", "abcdefgh"), ("other", "hgfedcba")))
    train(one, folder / "run", max_update=3, batch_size=2, valid_streams=1, save_interval_updates=2)
    return folder / "run/checkpoint_last.pt", one, other


def test_evaluation_and_generation(trained, tmp_path):
    path, own, other = trained
    for command in (
        lambda data: eval_lm(data, path),
        lambda data: run("validate", data, "--task", "streaming_lm", "--path", path, "--cpu"),
        lambda data: interactive(data, path, tmp_path, ["a b"], "--max-len-b", 4, "--beam", 1),
        lambda data: read_language_model(str(path), str(data), True),
    ):
        command(own)
        with pytest.raises(UserError, match=f"{path}: {REFUSED}"):
            command(other)


@pytest.mark.parametrize("how", ["resumed", "finetune_from_model", on_ci("init_from_transformer")])
def test_training(trained, tmp_path, how):
    path, own, other = trained
    common = dict(batch_size=2, valid_streams=1)
    if how == "resumed":
        train(own, tmp_path, max_update=2, **common)
    elif how == "init_from_transformer":
        path = tmp_path / "vanilla/checkpoint_last.pt"
        train(own, path.parent, arch="relative_transformer_lm", max_update=2, **common)
        train(own, tmp_path / "own", init_from_transformer=path, max_update=2, **common)
    with pytest.raises(UserError, match=REFUSED):
        train(other, tmp_path, max_update=9, **common, **({} if how == "resumed" else {how: path}))


@pytest.mark.on_ci
def test_export_and_average(trained, tmp_path, capsys):
    path, own, other = trained
    line = one_line(capsys, export, path, "--to", tmp_path / "model", "--dict", other / "dict.txt")
    assert "another source dictionary" in line and not (tmp_path / "model").exists()
    train(other, tmp_path / "other", max_update=3, batch_size=2, valid_streams=1)
    inputs = ["--inputs", path, tmp_path / "other/checkpoint_last.pt"]
    line = one_line(capsys, average, *inputs, "--output", tmp_path / "average.pt")
    assert "was trained with other dictionaries than" in line


def test_translation(parallel_data, tmp_path):
    parallel_text.train(parallel_data, tmp_path, max_update=2, disable_validation=True)
    other = tmp_path / "other"
    parallel_text.preprocess(other)
    parallel_text.generate(other / "data", tmp_path / "checkpoint_last.pt", max_len_b=2)
    lines = (other / "data/dict.en.txt").read_text().splitlines()
    (other / "data/dict.en.txt").write_text("\n".join([*lines[1:], lines[0]]) + "\n")
    with pytest.raises(UserError, match="another target dictionary"):
        parallel_text.generate(other / "data", tmp_path / "checkpoint_last.pt", max_len_b=2)


def test_without_checksums_sizes_alone_are_compared(trained, tmp_path):
    """In checkpoints of fairseq, or of an earlier release."""
    path, own, other = trained
    saved = torch.load(path, weights_only=True)
    del saved["extra_state"]["dictionaries"]
    torch.save(saved, tmp_path / "old.pt")
    assert "Loss (base 2)" in eval_lm(other, tmp_path / "old.pt")


@pytest.mark.on_ci
def test_an_imported_model_knows_its_dictionary(trained, tmp_path):
    """It was exported before; so does an average of it."""
    pytest.importorskip("transformers")
    from fb_fairseq.commands.import_transformers import main as import_transformers

    path, own, other = trained
    export([str(path), "--to", str(tmp_path / "model")])
    made = tmp_path / "imported/model.pt"
    made.parent.mkdir()
    import_transformers([str(tmp_path / "model"), "--out", str(made)])
    assert "Loss (base 2)" in eval_lm(own, made)
    average(["--inputs", str(made), "--output", str(tmp_path / "average.pt")])
    for checkpoint in (made, tmp_path / "average.pt"):
        with pytest.raises(UserError, match=REFUSED):
            eval_lm(other, checkpoint)


@pytest.mark.on_ci
def test_the_shipped_tracker_refuses_other_numbers(tmp_path, monkeypatch):
    """Elements that are numbered in another order: 1.6 % of its labels would be right."""
    import fb_fairseq
    from fb_fairseq.commands import evaluate_labels
    from fb_fairseq.commands.fairseq_commands import checkpoint_of
    from fb_fairseq.papers.toy_tasks.common.command import main as make_task

    monkeypatch.setenv("FB_FAIRSEQ_CACHE", str(tmp_path / "cache"))
    numbers = ["--length", "8", "--train", "200", "--valid", "9", "--test", "9"]
    make_task(["word_problem", "--group", "A5", *numbers, "--out", str(tmp_path / "text")])
    sides = dict(source_lang="input", target_lang="label")
    folder = checkpoint_of("a5").rpartition("/")[0]
    preprocess(tmp_path / "text", **sides)
    arguments = evaluate_labels.build_parser().parse_args([str(tmp_path / "text/bin"), "--path", "a5", "--cpu"])
    with pytest.raises(UserError, match="--path a5: was trained with another dictionary than .*dict.input.txt"):
        evaluate_labels.load_and_evaluate(arguments)
    monkeypatch.setattr(fb_fairseq, "__version__", "0.0.9")
    assert not checkpoint_of("a5").startswith(folder), "made by another version"
