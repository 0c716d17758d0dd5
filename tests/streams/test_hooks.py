"""The hooks around fairseq's checkpoints, with stand-ins of their attributes, and with objects that have none."""

import argparse
import logging

import pytest

from fb_fairseq.errors import UserError
from fb_fairseq.streams import hooks


class Iterator:
    run = None

    def __init__(self):
        self.folders = []

    def save_memory(self, folder):
        self.folders.append(folder)


def trainer(task=None, problem=None):
    """A trainer of one of fairseq's own models, or of one that was to be initialised."""
    model = object() if problem is None else argparse.Namespace(initialisation_problem=problem)
    return argparse.Namespace(task=task, get_model=lambda: model, get_num_updates=lambda: 0, data_parallel_world_size=1)


def test_fairseqs_own_tasks_models_and_iterators_are_left_alone():
    stock = object()
    hooks.before_load(trainer(stock), "a.pt")
    for restored in (None, {"epoch": 1}):
        hooks.after_load(trainer(stock), "a.pt", restored)
    hooks.before_save(argparse.Namespace(no_save=False, save_dir="ck"), trainer(stock), object())


def test_a_problem_of_initialisation_counts_only_without_a_checkpoint(caplog):
    caplog.set_level(logging.INFO)
    with pytest.raises(UserError, match="no such file"):
        hooks.after_load(trainer(problem="no such file"), "a.pt", None)
    hooks.after_load(trainer(problem=""), "a.pt", None)
    assert not caplog.messages
    for problem in ("", "no such file"):
        hooks.after_load(trainer(problem=problem), "a.pt", {})
    assert caplog.messages == ["a.pt takes precedence over --init-from-transformer"] * 2


def test_memory_is_saved_beside_the_checkpoint():
    """The first one names the run, later ones keep the name; with --no-save nothing happens."""
    iterator = Iterator()
    runs = []
    for no_save in (True, False, False):
        hooks.before_save(argparse.Namespace(no_save=no_save, save_dir="ck"), trainer(), iterator)
        runs.append(iterator.run)
    assert iterator.folders == ["ck", "ck"]
    assert runs[0] is None and runs[1] and runs[1] == runs[2]


def test_processes_save_as_one_run(monkeypatch):
    """They take the name of the first one, and wait until all have saved, within their group."""
    iterator, group, calls = Iterator(), object(), []

    def broadcast(found, src, group):
        calls.append(("broadcast", src, group))
        found[0] = "theirs"

    def barrier(group):
        calls.append(("barrier", *iterator.folders, group))

    monkeypatch.setattr("torch.distributed.broadcast_object_list", broadcast)
    monkeypatch.setattr("torch.distributed.barrier", barrier)
    several = argparse.Namespace(data_parallel_world_size=2, data_parallel_process_group=group)
    hooks.before_save(argparse.Namespace(no_save=False, save_dir="ck"), several, iterator)
    assert iterator.run == "theirs" and calls == [("broadcast", 0, group), ("barrier", "ck", group)]
