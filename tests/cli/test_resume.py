"""A run that is stopped or killed and resumed equals an uninterrupted one; what cannot be continued is refused."""

import random
import signal
import time

import pytest
import torch

from fb_fairseq.errors import UserError
from tests.cli.checkpoints import assert_same_parameters
from tests.cli.fairseq_commands import PLUGIN, json_logs, train, training_arguments
from tests.cli.own_commands import refused
from tests.malicious import flip
from tests.surroundings import wait_for

# Dropout and LayerDrop too: fairseq seeds them by update.
RUN = dict(
    max_update=100,
    save_interval_updates=3,
    keep_interval_updates=2,
    no_epoch_checkpoints=True,
    disable_validation=True,
    dropout=0.1,
    attention_dropout=0.1,
    decoder_layerdrop=0.2,
)


@pytest.fixture(scope="module")
def uninterrupted(byte_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted")
    train(byte_data, folder, **RUN)
    return folder


def test_killed_and_resumed(commands, byte_data, tmp_path, uninterrupted):
    """Killed at a random moment after the first checkpoint."""
    arguments = [*training_arguments(byte_data, tmp_path, **RUN), "--user-dir", PLUGIN]
    process = commands.start("fairseq-train", *arguments, printed=tmp_path / "log")
    wait_for((tmp_path / "checkpoint_last.pt").exists, pause=0.005)
    time.sleep(random.uniform(0, 0.5))
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it was still running"
    log = train(byte_data, tmp_path, **RUN)
    assert "Loaded checkpoint" in log and "no memory of the streams" not in log
    assert_same_parameters(tmp_path / "checkpoint_last.pt", uninterrupted / "checkpoint_last.pt")


def test_killed_while_checkpoint_last_is_copied(byte_data, tmp_path, monkeypatch):
    """fairseq copies checkpoint_last.pt; the old file survives an interrupted copy."""
    import shutil

    train(byte_data, tmp_path, max_update=4, save_interval_updates=2, disable_validation=True)
    before = (tmp_path / "checkpoint_last.pt").read_bytes()

    def interrupted_copy(source, target):
        with open(target, "wb") as file:
            file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "copyfile", interrupted_copy)
    with pytest.raises(KeyboardInterrupt):
        train(byte_data, tmp_path, max_update=6, save_interval_updates=2, disable_validation=True)
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == before


def test_epochs_start_with_an_empty_memory(byte_data, tmp_path):
    """Stopped at an epoch's end, no memory is needed: the number of streams may change."""
    common = dict(disable_validation=True, no_epoch_checkpoints=True)
    train(byte_data, tmp_path / "a", max_epoch=2, batch_size=16, **common)
    train(byte_data, tmp_path / "b", max_epoch=1, batch_size=16, **common)
    assert not list((tmp_path / "b").glob("stream_memory.*"))
    train(byte_data, tmp_path / "b", max_epoch=2, batch_size=16, **common)
    assert_same_parameters(tmp_path / "a/checkpoint_last.pt", tmp_path / "b/checkpoint_last.pt")
    log = train(byte_data, tmp_path / "b", max_epoch=3, batch_size=20, **common)
    assert float(json_logs(log, "train")[-1]["train_total_tokens"]) == 3001


STOPPED = dict(max_update=20, disable_validation=True, no_epoch_checkpoints=True)
RESUMED = {**STOPPED, "max_update": 30}


def test_streams_may_be_divided_differently(byte_data, tmp_path):
    """Batch size x update frequency is what counts; blocks of another length may continue where they fit."""
    train(byte_data, tmp_path / "a", **STOPPED, batch_size=6)
    train(byte_data, tmp_path / "b", **STOPPED, batch_size=6)
    train(byte_data, tmp_path / "a", **RESUMED, batch_size=6)
    log = train(byte_data, tmp_path / "b", **RESUMED, batch_size=2, update_freq=3)
    assert "no memory of the streams" not in log
    one, other = (torch.load(tmp_path / f"{n}/checkpoint_last.pt")["model"] for n in "ab")
    for name in one:
        if not name.endswith("k_proj.bias"):  # softmax does not see it, and Adam blows its rounding errors up
            torch.testing.assert_close(one[name], other[name], atol=1e-5, rtol=1e-5, msg=name)
    log = train(byte_data, tmp_path / "a", **{**STOPPED, "max_update": 32}, batch_size=6, tokens_per_sample=14)
    assert "no memory of the streams" not in log


@pytest.mark.parametrize(
    "changes,message",
    [
        (dict(batch_size=5), r"--batch-size x processes x --update-freq is 5 streams.*4.*--reset-dataloader"),
        (dict(tokens_per_sample=9), r"--tokens-per-sample 9 .*no block starts.*step 140"),
        (dict(train_subset="valid"), r"valid split \(550 tokens\).*3001 tokens.*--reset-dataloader"),
    ],
)
def test_what_cannot_be_continued_is_refused(byte_data, tmp_path_factory, changes, message):
    folder = tmp_path_factory.getbasetemp() / "stopped"
    if not folder.exists():
        train(byte_data, folder, **STOPPED)
    before = {path.name: path.stat().st_mtime for path in folder.iterdir()}
    with pytest.raises(UserError, match=message) as error:
        train(byte_data, folder, **{**RESUMED, **changes})
    assert "\n" not in str(error.value)
    assert before == {path.name: path.stat().st_mtime for path in folder.iterdir()}, "nothing is lost"


def test_reset_dataloader_starts_the_epoch_anew(byte_data, tmp_path):
    train(byte_data, tmp_path, **STOPPED)
    log = train(byte_data, tmp_path, **RESUMED, batch_size=5, reset_dataloader=True)
    assert float(json_logs(log, "train_inner")[-1]["bsz"]) == 5 and "no memory of the streams" not in log


def test_span_without_parameters_may_change(byte_data, tmp_path):
    """With absolute positions the span has no parameters: the memory is cut, or grows."""
    train(byte_data, tmp_path, **STOPPED, relative_positions="none")
    for updates, span in ((24, 4), (28, 25)):
        changes = dict(relative_positions="none", attention_span=span, max_update=updates)
        assert "no memory" not in train(byte_data, tmp_path, **{**STOPPED, **changes})


@pytest.mark.parametrize("kind,size", [("exact", 4), ("bfloat16", 2), ("float16", 2), ("none", None)])
def test_memory_files(byte_data, tmp_path, kind, size):
    train(byte_data, tmp_path, **STOPPED, save_interval_updates=5, save_stream_memory=kind)
    files = sorted(path.name for path in tmp_path.glob("stream_memory.*"))
    assert files == ([] if size is None else ["stream_memory.1.15.rank0.pt", "stream_memory.1.20.rank0.pt"])
    if size:
        ((_, memory),) = torch.load(tmp_path / files[-1], weights_only=True)["states"]
        assert memory.shape == (1, 10, 4, 16) and memory.element_size() == size
    log = train(byte_data, tmp_path, **RESUMED, save_stream_memory=kind)
    assert ("no memory of the streams" in log) == (kind == "none")
    assert len(list(tmp_path.glob("stream_memory.*"))) == (0 if kind == "none" else 2)


def test_memory_files_that_do_not_fit(byte_data, tmp_path):
    """Edited by hand."""
    train(byte_data, tmp_path, **STOPPED)
    path = tmp_path / "stream_memory.1.20.rank0.pt"
    content = torch.load(path, weights_only=True)
    content["states"] = [(ids, memory[..., :3]) for ids, memory in content["states"]]
    torch.save(content, path)
    with pytest.raises(UserError, match="the streams' memory has .* width 3"):
        train(byte_data, tmp_path, **RESUMED)
    for other in ({"states": []}, [1], {"place": {}, "states": [1]}):
        torch.save(other, path)
        with pytest.raises(UserError, match="memory cannot be read .*; remove the file to resume"):
            train(byte_data, tmp_path, **RESUMED)


def test_lost_memory_fills_again(byte_data, tmp_path, monkeypatch):
    """Without a file the first block starts empty, and those after it do not."""
    from fb_fairseq.streams.state import StateHandle

    train(byte_data, tmp_path, **STOPPED, save_stream_memory="none")
    found = []
    read = StateHandle.read
    monkeypatch.setattr(StateHandle, "read", lambda handle: found.append(read(handle)) or found[-1])
    train(byte_data, tmp_path, **RESUMED)
    assert [state is not None for state in found] == [False] + [True] * 9
    assert [state.memory_KCBD.shape[1] for state in found[1:]] == [7] + [10] * 8


def test_files_of_a_larger_number_of_processes_are_removed(byte_data, tmp_path):
    (tmp_path / "stream_memory.1.10.rank1.pt").write_bytes(b"of an earlier run")
    train(byte_data, tmp_path, **STOPPED)
    assert [path.name for path in tmp_path.glob("stream_memory.*")] == ["stream_memory.1.20.rank0.pt"]


@pytest.mark.on_ci
def test_per_epoch_update_freq(byte_data, tmp_path):
    """Each epoch is cut for its own frequency; stopping at an epoch's end changes nothing."""
    common = dict(disable_validation=True, no_epoch_checkpoints=True, update_freq="2,1", batch_size=16)
    log = train(byte_data, tmp_path / "a", max_epoch=3, **common)
    entries = json_logs(log, "train")
    assert [float(entry["train_total_tokens"]) for entry in entries] == [3001] * 3
    assert [float(entry["train_num_updates"]) for entry in entries] == [14, 41, 68]
    train(byte_data, tmp_path / "b", max_epoch=1, **common)
    train(byte_data, tmp_path / "b", max_epoch=3, **common)
    assert_same_parameters(tmp_path / "a/checkpoint_last.pt", tmp_path / "b/checkpoint_last.pt")


@pytest.mark.parametrize("damage", ["truncated", "flipped"])
def test_a_broken_checkpoint(byte_data, tmp_path, damage):
    train(byte_data, tmp_path, **STOPPED, save_interval_updates=5, keep_interval_updates=2)
    last = tmp_path / "checkpoint_last.pt"
    last.write_bytes(flip(last, 0, 0.5) if damage == "flipped" else last.read_bytes()[:5000])
    with pytest.raises(UserError, match="checkpoint_last.pt: is truncated or corrupt; give an .* earlier checkpoint"):
        train(byte_data, tmp_path, **RESUMED)
    assert "no memory" not in train(byte_data, tmp_path, **RESUMED, restore_file=tmp_path / "checkpoint_1_15.pt")


def test_the_last_line_of_a_refused_command(commands, byte_data, tmp_path):
    """What a user sees: exit status 2 and, last, one line that says it all; with FB_FAIRSEQ_DEBUG=1 the traceback."""
    train(byte_data, tmp_path, **STOPPED)
    arguments = [*training_arguments(byte_data, tmp_path, **RESUMED, batch_size=3), "--user-dir", PLUGIN]
    refused(commands.run("fairseq-train", *arguments), "--batch-size x processes")
    result = commands.run("fairseq-train", *arguments, environment={"FB_FAIRSEQ_DEBUG": "1"})
    assert result.status == 1 and "Traceback (most recent call last):" in result.errors
