"""When a run is finished: at its limits, and not before; and what a resumed run knows of its validations."""

import argparse
from types import SimpleNamespace

import pytest

from fb_fairseq.patches import stopping_state
from fb_fairseq.patches.limits import limit_reached
from fb_fairseq.patches.stopping_state import STOPPING, restore_stopping

NOTHING_REACHED = dict(updates=9, hours=1.5, next_epoch=3, worse=1, lr=0.5)


def limits(**given):
    """fairseq's configuration with these limits; without them, training goes on for ever."""
    names = dict(max_update=0, max_epoch=0, stop_time_hours=0, stop_min_lr=-1.0)
    optimization = argparse.Namespace(**{**names, **{name: given[name] for name in names if name in given}})
    return argparse.Namespace(
        optimization=optimization, checkpoint=argparse.Namespace(patience=given.get("patience", -1))
    )


@pytest.mark.parametrize(
    "beyond,reached,line",
    [
        (dict(max_update=10), dict(max_update=9), "update 9 of --max-update 9"),
        (dict(max_epoch=3), dict(max_epoch=2), "epoch 2 of --max-epoch 2"),
        (dict(stop_time_hours=1.5), dict(stop_time_hours=1.25), "1.5 hours of --stop-time-hours 1.25"),
        (dict(stop_min_lr=0.25), dict(stop_min_lr=0.5), "learning rate 0.5, --stop-min-lr 0.5"),
        (dict(patience=2), dict(patience=1), "1 validations without improvement, --patience 1"),
    ],
    ids=lambda given: next(iter(given)) if isinstance(given, dict) else "",
)
def test_limits(beyond, reached, line):
    assert limit_reached(limits(), **NOTHING_REACHED) is None
    assert limit_reached(limits(**beyond), **NOTHING_REACHED) is None
    assert limit_reached(limits(**reached), **NOTHING_REACHED) == line


def test_what_is_not_known_yet():
    """An epoch that has not ended, a rate that is not looked at, no validation."""
    given = limits(max_epoch=1, stop_min_lr=9.0, patience=1)
    assert limit_reached(given, updates=5, hours=0) is None
    assert limit_reached(given, updates=5, hours=0, next_epoch=0, worse=0, lr=float("inf")) is None


@pytest.fixture
def trainer(monkeypatch):
    """A trainer whose learning rate depends on a plateau, and that notes its steps."""
    stop = SimpleNamespace(best=None, num_runs=0)
    plateau = SimpleNamespace(num_bad_epochs=0)
    monkeypatch.setattr(stopping_state, "_early_stop", lambda: stop)
    monkeypatch.setattr(stopping_state, "_plateau", lambda trainer: plateau)
    steps = []
    return SimpleNamespace(resets=[], stop=stop, plateau=plateau, steps=steps, lr_step=lambda *step: steps.append(step))


SAVED = {STOPPING: {"best": 2.5, "num_runs": 2, "num_bad_epochs": 3}, "val_loss": 2.75}


@pytest.mark.parametrize(
    "resets,stop,bad,stepped",
    [
        ([], (2.5, 2), 3, True),
        (["meters"], (None, 0), 0, True),
        (["optimizer"], (None, 0), 0, False),
        (["lr_scheduler"], (2.5, 2), 0, False),
    ],
)
@pytest.mark.parametrize("at_end", [True, False])
def test_a_resumed_run(trainer, resets, stop, bad, stepped, at_end):
    """The best loss and the validations since; and the plateau's step at the end of an epoch, which was not saved."""
    trainer.resets = resets
    place = SimpleNamespace(epoch=7, iterations_in_epoch=0 if at_end else 4)
    assert restore_stopping(trainer, place, SAVED) == ({} if stop[0] is None else SAVED[STOPPING])
    assert (trainer.stop.best, trainer.stop.num_runs) == stop and trainer.plateau.num_bad_epochs == bad
    assert trainer.steps == ([(7, 2.75)] if stepped and at_end else [])


@pytest.mark.parametrize("stopping,best,runs", [({"best": 0.0, "num_runs": 0}, 0.0, 0), ({}, None, 0)])
def test_a_run_without_a_worse_validation(trainer, stopping, best, runs):
    restore_stopping(trainer, SimpleNamespace(epoch=1, iterations_in_epoch=1), {STOPPING: stopping})
    assert (trainer.stop.best, trainer.stop.num_runs) == (best, runs)
    assert trainer.plateau.num_bad_epochs == 0


def test_a_checkpoint_from_before(trainer):
    """It records no best loss and no number of validations."""
    assert restore_stopping(trainer, SimpleNamespace(epoch=1, iterations_in_epoch=1), {}) == {}


def test_what_is_saved_of_a_run_without_validations(monkeypatch):
    """As in a program that calls fairseq's trainer."""
    monkeypatch.setattr(stopping_state, "training_modules", list)
    monkeypatch.setattr(stopping_state, "_plateau", lambda trainer: None)
    save = lambda trainer, filename, extra: extra
    found = stopping_state._save_checkpoint(save, SimpleNamespace(), "a.pt", {"x": 1})
    assert found == {"x": 1, STOPPING: {"best": None, "num_runs": 0}}
