"""Bad input: one line that names the option or file and the remedy, and nothing written."""

import shutil

import pytest

from fb_fairseq.commands import preprocess_bytes
from fb_fairseq.errors import UserError
from tests.cli.fairseq_commands import run, train


@pytest.mark.parametrize(
    "changes,message",
    [
        (dict(decoder_attention_heads=3), "--decoder-attention-heads 3.*--decoder-head-dim"),
        (dict(attention_span=0), "--attention-span 0"),
        (dict(memory_composition="top"), "--memory-composition top: unknown.*layer:<l>"),
        (dict(memory_composition="layer:3"), "--memory-composition layer:3.*layer:2"),
        (dict(batch_size=4000), "--batch-size.*4000 streams.*3001 tokens"),
        (dict(valid_streams=500), "--valid-streams: 500 streams.*400 tokens"),
        (dict(valid_streams=0), "--valid-streams 0"),
        (dict(tokens_per_sample=0), "--tokens-per-sample 0"),
        (dict(max_tokens=100), "--max-tokens has no meaning on streams"),
        (dict(max_tokens_valid=100), "--max-tokens-valid has no meaning on streams"),
        (dict(batch_size_valid=7), "--batch-size-valid.*--valid-streams"),
        (dict(skip_remainder_batch=True), "--skip-remainder-batch"),
        (dict(relative_positions="none", decoder_learned_pos=True), "--decoder-learned-pos.*stream"),
        (dict(batch_size=None, max_tokens=30), "--max-tokens"),
    ],
)
def test_options(byte_data, tmp_path, changes, message):
    with pytest.raises(UserError, match=message) as error:
        train(byte_data, tmp_path / "ck", max_update=3, **changes)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.glob("ck/*")), "nothing is written"


def test_missing_and_empty_data(byte_data, tmp_path):
    with pytest.raises(UserError, match="nowhere/dict.txt: no such file"):
        train("nowhere", tmp_path / "ck", max_update=3)
    data = tmp_path / "data"
    shutil.copytree(byte_data, data)
    preprocess_bytes.write_split(str(data / "train"), [], preprocess_bytes.byte_dictionary(), False)
    with pytest.raises(UserError, match="data/train: the split is empty.*--train-subset"):
        train(data, tmp_path / "ck", max_update=3)
    (data / "valid.bin").unlink()
    (data / "valid.idx").unlink()
    with pytest.raises(UserError, match="data/valid: the split is missing.*--valid-subset"):
        train(data, tmp_path / "ck", max_update=3)


def test_dictionary_of_another_size(byte_data, tmp_path):
    """In evaluation and when a run is resumed: the same line, not a list of shapes."""
    train(byte_data, tmp_path / "ck", max_update=3)
    data = tmp_path / "data"
    shutil.copytree(byte_data, data, ignore=shutil.ignore_patterns("checksums.json"))
    with open(data / "dict.txt", "a") as file:
        file.write("one 1\ntwo 1\n")
    message = "dict.txt: .*260 symbols.*262.*--srcdict"
    with pytest.raises(UserError, match=message):
        run("eval-lm", data, "--task", "streaming_lm", "--path", tmp_path / "ck/checkpoint_last.pt", "--cpu")
    with pytest.raises(UserError, match=message):
        train(data, tmp_path / "ck", max_update=6)


@pytest.mark.parametrize(
    "arguments,message",
    [
        (["--context-window", 4], "--context-window has no meaning on streams"),
        (["--max-tokens", 400], "--max-tokens has no meaning on streams"),
    ],
)
def test_evaluation_options(byte_data, tmp_path_factory, arguments, message):
    folder = tmp_path_factory.getbasetemp() / "for_evaluation"
    if not folder.exists():
        train(byte_data, folder, max_update=3)
    with pytest.raises(UserError, match=message):
        run(
            "eval-lm",
            byte_data,
            "--task",
            "streaming_lm",
            "--path",
            folder / "checkpoint_last.pt",
            "--cpu",
            "--tokens-per-sample",
            7,
            *arguments,
        )


def test_argparse_names_an_invalid_choice(byte_data, tmp_path, capsys):
    with pytest.raises(SystemExit):
        train(byte_data, tmp_path, memory_projections="none")
    assert "--memory-projections" in capsys.readouterr().err.splitlines()[-1]
