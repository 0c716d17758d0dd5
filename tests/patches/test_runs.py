"""Patches of runs, each alone: what ends them, what they save, what they go on from."""

import argparse
import multiprocessing
import os
import signal
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager
from omegaconf import OmegaConf

from fb_fairseq.errors import UserError
from fb_fairseq.patches import (
    best_metric,
    finished_run,
    interruption,
    processes,
    training_files,
    training_signals,
)


@pytest.mark.parametrize("resets,extra,seconds", [(True, {}, 0), (True, None, 5), (False, {}, 5)])
def test_hours_begin_anew_with_the_meters(resets, extra, seconds):
    """If there is a checkpoint."""
    trainer = SimpleNamespace(_previous_training_time=5)
    load = lambda trainer, filename, reset_meters=False: extra
    assert finished_run._note_resets(load, trainer, "a.pt", reset_meters=resets) is extra
    assert trainer._previous_training_time == seconds and trainer.resets == ["meters"] * resets


@pytest.mark.parametrize("resets,hours", [([], 2.0), (["meters"], 0)])
def test_what_a_loaded_run_has_reached(monkeypatch, resets, hours):
    """Hours of training begin anew with the meters."""
    seen = []
    monkeypatch.setattr(finished_run, "restore_stopping", lambda *given: {"num_runs": 3})
    monkeypatch.setattr(finished_run, "limit_reached", lambda cfg, **reached: seen.append(reached))
    trainer = SimpleNamespace(resets=resets, cfg=None, get_num_updates=lambda: 7, get_lr=lambda: 0.5)
    batches = SimpleNamespace(next_epoch_idx=4)
    loaded = {"previous_training_time": 7200}, batches
    cfg = argparse.Namespace(reset_dataloader=False)
    assert finished_run._load_checkpoint(lambda cfg, trainer: loaded, cfg, trainer) == loaded
    assert seen == [dict(updates=7, hours=hours, next_epoch=4, worse=3, lr=0.5)] and not hasattr(batches, "is_finished")


@pytest.mark.parametrize("rank,no_save,locked", [(0, False, 1), (1, False, 0), (0, True, 0), (1, True, 0)])
def test_who_locks_the_folder(monkeypatch, rank, no_save, locked):
    """The process that saves."""
    calls = []
    monkeypatch.setattr(training_files, "lock_folder", lambda *given: calls.append(given))
    trainer = SimpleNamespace(data_parallel_rank=rank)
    cfg = argparse.Namespace(no_save=no_save, save_dir="a")
    assert training_files._load_and_lock(lambda cfg, trainer: "loaded", cfg, trainer) == "loaded"
    assert calls == [("--save-dir", "a")] * locked


@pytest.mark.parametrize("missing,saved", [("bleu", 1), ("other", 0)])
def test_a_best_metric_that_nothing_measures(monkeypatch, missing, saved):
    """It is refused, and the model saved; any other error is as it was."""
    calls = []
    monkeypatch.setattr(checkpoint_utils, "save_checkpoint", lambda *given: calls.append(given))
    checkpoint = dict(best_checkpoint_metric="bleu", no_save=False, no_last_checkpoints=False)
    cfg = OmegaConf.create({"checkpoint": checkpoint})

    def validate(*given):
        raise KeyError(missing)

    error, message = (UserError, "bleu") if saved else (KeyError, "other")
    with pytest.raises(error, match=message):
        best_metric._validate(validate, cfg, "trainer", "task", "batches", ["valid"])
    assert calls == [(cfg.checkpoint, "trainer", "batches", None)] * saved


def test_checkpoints_are_replaced_not_overwritten(tmp_path):
    """So whoever kills the copy leaves one of the two."""
    (tmp_path / "last.pt").write_text("old")
    (tmp_path / "new.pt").write_text("new")
    os.link(tmp_path / "last.pt", tmp_path / "kept.pt")
    assert PathManager.copy(str(tmp_path / "new.pt"), str(tmp_path / "last.pt"), overwrite=True)
    assert [(tmp_path / name).read_text() for name in ("last.pt", "kept.pt")] == ["new", "old"]


@pytest.mark.parametrize("parent", [None, "a process"])
@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_a_spawned_process_that_ignores_interrupts_ends_with_its_parent(monkeypatch, parent, handler):
    asked = []
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: parent)
    monkeypatch.setattr(signal, "getsignal", lambda number: handler)
    monkeypatch.setattr(torch.multiprocessing, "_prctl_pr_set_pdeathsig", asked.append)
    processes.end_with_parent()
    assert asked == ([signal.SIGTERM] if parent and handler == signal.SIG_IGN else [])


def test_several_processes_are_not_interrupted():
    trainer = SimpleNamespace(data_parallel_world_size=2, interruption=None)
    assert not training_signals.heed_signals(trainer).requested and trainer.interruption is None
    trainer.data_parallel_world_size = 1
    assert training_signals.heed_signals(trainer) is trainer.interruption is not None
    training_signals.give_signals_back(trainer)


def test_an_interrupted_run_saves_one_checkpoint(monkeypatch):
    """Whatever else it would save there."""
    saved = []
    monkeypatch.setattr(checkpoint_utils, "save_checkpoint", lambda cfg, *given: saved.append((cfg, given)))
    wanted = {"no_epoch_checkpoints": False, "save_interval_updates": 5, "save_dir": "a", "no_last_checkpoints": False}
    wanted["no_save"] = False
    cfg, trainer = OmegaConf.create({"checkpoint": wanted}), SimpleNamespace()
    interruption._save(cfg, trainer, "batches")
    ((found, given),) = saved
    assert found == {**wanted, **interruption.LAST_ONLY} and given == (trainer, "batches", None)


def test_the_file_of_a_part_is_looked_for(tmp_path):
    """Of a model that is spread over processes, each has its own."""
    cfg = argparse.Namespace(restore_file=str(tmp_path / "a.pt"))
    trainer = SimpleNamespace(checkpoint_suffix="-shard1")
    load = lambda cfg, trainer: "loaded"
    with pytest.raises(UserError, match="--restore-file .*/a-shard1.pt: no such file"):
        training_files._load_existing_checkpoint(load, cfg, trainer)
    (tmp_path / "a-shard1.pt").touch()
    assert training_files._load_existing_checkpoint(load, cfg, trainer) == "loaded"
