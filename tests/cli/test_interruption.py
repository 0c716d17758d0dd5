"""Ctrl-C and ``kill`` in fairseq-train: the update ends, all is saved, and what was due is still due. The same command
again gives what a run without interruption gives."""

import collections
import contextlib
import functools
import itertools
import json
import os
import re
import shutil
import signal
import sys
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from fairseq.dataclass.configs import CheckpointConfig
from fairseq.version import __version__
from omegaconf import OmegaConf

from fb_fairseq.interruption import Interrupted, heeding_signals
from fb_fairseq.patches import interruption, training_signals
from tests.cli import parallel_text
from tests.cli.checkpoints import assert_same_parameters, eval_lm
from tests.cli.fairseq_commands import PLUGIN, json_logs, train, train_in_two_processes, training_arguments
from tests.conftest import on_ci
from tests.surroundings import wait_for

TERM = signal.SIGTERM
MEASURED = ("wall", "wps", "ups")  # ends of values that differ from run to run


@contextlib.contextmanager
def signals(*sent):
    """Send signals to this process while it trains; they end it. Yields the exit.

    ``sent``: (method, updates, calls, number). The signal ``number`` comes when fairseq's ``Trainer`` has made so many
    updates, before this method is called for the ``calls + 1``-th time since.
    """
    import fairseq_cli.train  # noqa: F401  it is patched now
    from fairseq.trainer import Trainer

    from fb_fairseq import patches

    patches.apply_patches()
    counts = collections.Counter()

    def call(trainer, name, original, *arguments, **more):
        now = (name, trainer.get_num_updates())
        for method, updates, calls, number in sent:
            if (method, updates) == now and calls == counts[now]:
                os.kill(os.getpid(), number)
        counts[now] += 1
        return original(trainer, *arguments, **more)

    changed = {method: functools.partialmethod(call, method, getattr(Trainer, method)) for method, *_ in sent}
    with mock.patch.multiple(Trainer, **changed), pytest.raises(SystemExit) as stop:
        yield stop


def saved(folder) -> dict:
    """What the checkpoints of a folder say of validations, and where training stands."""
    found = {}
    for path in folder.glob("checkpoint*.pt"):
        content = torch.load(path, weights_only=False)
        state = content["extra_state"]
        history = content["optimizer_history"][-1]
        place = [state["train_iterator"][name] for name in ("epoch", "iterations_in_epoch")]
        rate = [content["last_optimizer_state"]["param_groups"][0]["lr"], history["lr_scheduler_state"].get("best")]
        values = [state.get("best"), state["val_loss"], state["stopping"]]
        found[path.name] = [history["num_updates"], *place, *rate, *values]
    return found


def logged(caplog) -> dict:
    """The entries of the log by tag and update, without what differs from run to run."""
    found = {}
    for record in caplog.records:
        if record.name in ("train", "valid", "valid1"):
            entry = json.loads(record.getMessage())
            kept = {name: value for name, value in entry.items() if not name.endswith(MEASURED)}
            found[record.name, entry[f"{record.name}_num_updates"]] = kept
    caplog.clear()
    return found


def check_continued(run, folder, caplog, *sent) -> None:
    """Check that a run that signals interrupt ends, when it is run again, as one without interruption."""
    whole = folder / "whole"
    parts = folder / "parts"
    caplog.clear()
    run(whole)
    expected = logged(caplog)
    with signals(*sent) as stop:
        run(parts)
    assert stop.value.code == 128 + TERM
    run(parts)
    assert logged(caplog) == expected
    assert saved(parts) == saved(whole)
    for name in saved(whole):
        assert_same_parameters(parts / name, whole / name)


EPOCHS = dict(batch_size=32, max_epoch=3)  # 14 updates each
WORSE = dict(maximize_best_checkpoint_metric=True)  # the loss falls, which then counts as worse
PLATEAU = dict(**WORSE, lr_scheduler="reduce_lr_on_plateau", lr_patience=0, no_epoch_checkpoints=True)
EVERY_FIVE = dict(no_epoch_checkpoints=True, max_update=18, save_interval_updates=5, keep_interval_updates=1)
IN_VALIDATION = {
    "in an epoch": (dict(**EVERY_FIVE, patience=9), 10, 0),
    "of a second subset": (dict(**EVERY_FIVE, valid_subset="valid,valid1"), 10, 25),
    "after an epoch, where nothing is saved": on_ci(dict(**EPOCHS, keep_best_checkpoints=2, save_interval=2), 14, 0),
    "after the last epoch": on_ci(dict(**EPOCHS, keep_last_epochs=1), 42, 0),
    "--stop-time-hours": on_ci(dict(no_epoch_checkpoints=True, stop_time_hours=1e-9), 1, 0),
    "--patience ends it": on_ci(dict(**EPOCHS, **WORSE, patience=1), 28, 0),
    "plateau": ({**EPOCHS, **PLATEAU}, 28, 0),
    "--stop-min-lr": on_ci(dict(**EPOCHS, **PLATEAU, stop_min_lr=0.005), 28, 0),
}


@pytest.mark.parametrize("changes,update,calls", IN_VALIDATION.values(), ids=IN_VALIDATION)
def test_in_a_validation(byte_data, tmp_path, caplog, changes, update, calls):
    """At once; it is made when the run resumes, before anything else."""
    run = lambda folder: train(byte_data, folder, **changes)
    check_continued(run, tmp_path, caplog, ("valid_step", update, calls, TERM))


BESIDE_VALIDATION = {
    "before one": (EVERY_FIVE, "train_step", 9),
    "before an epoch's end without one": on_ci(dict(**EPOCHS, validate_interval=2, save_interval=2), "train_step", 13),
    "between epochs": (dict(**EPOCHS, **PLATEAU, save_interval=2), "lr_step", 14),
}


@pytest.mark.parametrize("changes,method,update", BESIDE_VALIDATION.values(), ids=BESIDE_VALIDATION)
def test_in_an_update(byte_data, tmp_path, caplog, changes, method, update):
    """It ends first."""
    run = lambda folder: train(byte_data, folder, **changes)
    check_continued(run, tmp_path, caplog, (method, update, 0, TERM))


def test_translation(parallel_data, tmp_path, caplog):
    """Stock tasks and iterators: in a validation in an epoch, and after one."""
    if not __version__.startswith("0.12.2"):
        pytest.skip("fairseq-fixed's translation runs do not resume bit by bit")
    changes = dict(max_epoch=2, validate_interval_updates=8, save_interval_updates=8)
    run = lambda folder: parallel_text.train(parallel_data, folder, **changes)
    check_continued(run, tmp_path / "in", caplog, ("valid_step", 8, 0, TERM))
    updates = torch.load(tmp_path / "in/whole/checkpoint_last.pt")["optimizer_history"][-1]["num_updates"]
    check_continued(run, tmp_path / "after", caplog, ("valid_step", updates // 2, 0, TERM))


RUN = dict(no_epoch_checkpoints=True, max_update=60, log_interval=1, validate_interval_updates=30)
AT_30 = ("valid_step", 30, 0, TERM)
FINETUNE = "finetune_from_model"


@pytest.fixture(scope="module")
def never_interrupted(byte_data, tmp_path_factory):
    """The folder of a run without interruption."""
    folder = tmp_path_factory.mktemp("never_interrupted")
    train(byte_data, folder, **RUN)
    return folder


def interrupted_twice(byte_data, folder):
    """A run that is interrupted in its validation at update 30, and again when it makes up for it."""
    for _ in range(2):
        with signals(AT_30):
            train(byte_data, folder, **RUN)


def test_in_the_validation_that_is_made_up_for(byte_data, tmp_path, never_interrupted):
    """It is still due, and the checkpoint is one for every reader."""
    interrupted_twice(byte_data, tmp_path)
    assert "Loss (base 2)" in eval_lm(byte_data, tmp_path / "checkpoint_last.pt", gen_subset="valid")
    log = train(byte_data, tmp_path, **RUN)
    assert log.index("resuming at update 30") < log.index("begin validation") < log.index('"num_updates": "31"')
    assert saved(tmp_path) == saved(never_interrupted)
    for name in saved(tmp_path):
        assert_same_parameters(tmp_path / name, never_interrupted / name)


def test_several_processes_make_up_for_it(commands, byte_data, tmp_path):
    """They take over the run of one."""
    interrupted_twice(byte_data, tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")  # this process has locked the other
    log = train_in_two_processes(commands, byte_data, tmp_path / "two", **{**RUN, "batch_size": 2, "max_update": 33})
    assert [entry["valid_num_updates"] for entry in json_logs(log, "valid")] == ["30", "33"]


@pytest.mark.parametrize("option", ["reset_dataloader", FINETUNE])
def test_what_begins_anew_owes_nothing(byte_data, tmp_path, option):
    """It starts from a checkpoint whose validation is due, and does not make up for it."""
    first, run = tmp_path / "first", {**RUN, "max_update": 35, "validate_interval_updates": 31}
    interrupted_twice(byte_data, first)
    path = first / "checkpoint_last.pt"
    folder, value = (tmp_path / "second", path) if option == FINETUNE else (first, True)
    log = train(byte_data, folder, **run, **{option: value})
    assert "is still to be made" not in log and "begin validation" in log


@pytest.mark.parametrize("option", ["no_save", "no_last_checkpoints"])
def test_without_checkpoint_last(byte_data, tmp_path, capfd, option):
    """The line says so."""
    for moment, update in ((AT_30, 30), (("train_step", 20, 0, TERM), 21)):
        with signals(moment):
            train(byte_data, tmp_path, **RUN, **{option: True})
        line = f"interrupted at update {update} of 60; --{option.replace('_', '-')}: nothing was saved"
        assert line in capfd.readouterr().err
    assert not list(tmp_path.glob("*.pt"))


def test_a_second_signal(byte_data, tmp_path, capfd, never_interrupted):
    """It does not wait for the update's end; the checkpoint before is complete."""
    run = dict(**RUN, save_interval_updates=10)
    with signals(("train_step", 12, 0, signal.SIGINT), ("train_step", 12, 0, TERM)) as stop:
        train(byte_data, tmp_path, **run)
    assert stop.value.code == 128 + TERM
    assert "interrupted again, before all was saved; run the same command again to resume" in capfd.readouterr().err
    assert "resuming at update 10" in train(byte_data, tmp_path, **run)
    assert_same_parameters(tmp_path / "checkpoint_last.pt", never_interrupted / "checkpoint_last.pt")


def test_ctrl_c(commands, byte_data, tmp_path, never_interrupted):
    """One line, a checkpoint, status 130; the same command continues, and equals a run without interruption."""
    arguments = [*training_arguments(byte_data, tmp_path, **RUN), "--user-dir", PLUGIN]
    process = commands.start("fairseq-train", *arguments, printed=tmp_path / "log")
    wait_for(lambda: any('"num_updates": "7"' in line for line in process.lines()), pause=0.005)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    printed = process.lines()
    found = re.fullmatch(
        r"fairseq-train: interrupted at update (\d+) of 60; run the same command again .*", printed[-1]
    )
    assert found and 7 <= int(found[1]) < 30, printed[-5:]
    assert not any("Traceback" in line for line in printed)
    log = train(byte_data, tmp_path, **RUN)
    assert f"resuming at update {found[1]}" in log
    assert_same_parameters(tmp_path / "checkpoint_last.pt", never_interrupted / "checkpoint_last.pt")


@contextlib.contextmanager
def signal_at_line(number):
    """Send a signal before the line ``number`` that runs in the block, of these two modules."""
    files = {module.__file__ for module in (interruption, training_signals)}
    lines = itertools.count()

    def trace(frame, event, argument):
        if frame.f_code.co_filename not in files:
            return None
        if event == "line" and next(lines) == number:
            os.kill(os.getpid(), TERM)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("line", range(8))
def test_at_any_line(monkeypatch, line):
    """Training ends only when all is saved, at whichever line after an update a signal comes; else after the next."""
    saves = []
    monkeypatch.setattr(interruption, "_save", lambda *args, **kwargs: saves.append(args))
    cfg = OmegaConf.create({"checkpoint": CheckpointConfig, "optimization": {"max_update": 60}})
    with heeding_signals() as requests, pytest.raises(Interrupted):
        trainer = SimpleNamespace(interruption=requests, get_num_updates=lambda: 7)
        for number in (line, None):
            with signal_at_line(number):
                interruption._validate_and_save(lambda *args: ([None], False), cfg, trainer, None, None, [], False)
            assert not saves
    assert requests.requested == TERM and len(saves) == 1
