"""The state of early stopping, and of a plateau of the loss, in checkpoints, which fairseq leaves out.

When they are loaded, the trainer has the attribute ``resets``, see ``finished_run.py``.
"""

from types import SimpleNamespace
from typing import Any

from fb_fairseq.patches.wrapping import training_modules, wrap_once

STOPPING = "stopping"  # the entry of a checkpoint's extra_state that holds it
DUE = "validation_is_due"  # and in it, whether the validation after the checkpoint's last update was not made


def patch_stopping_state() -> None:
    """Save for how many validations the loss has not improved, and what the last one did to the learning rate of
    ``reduce_lr_on_plateau``; and whether a validation is still due.
    """
    from fairseq.trainer import Trainer

    wrap_once(Trainer, "save_checkpoint", "stopping_state", _save_checkpoint)


def _save_checkpoint(original, self, filename, extra_state):
    stop = _early_stop()
    plateau = _plateau(self)
    stopping = {"best": getattr(stop, "best", None), "num_runs": getattr(stop, "num_runs", 0)}
    if plateau is not None:
        stopping["num_bad_epochs"] = plateau.num_bad_epochs
    if getattr(self, "is_validation_due", False):
        stopping[DUE] = True
    return original(self, filename, {**extra_state, STOPPING: stopping})


def restore_stopping(trainer, epoch_itr, extra_state: dict[str, Any]) -> dict[str, Any]:
    """Restore what was added to a checkpoint: the state of early stopping and of the plateau.

    Returns:
        What it has added; empty where options leave it out.
    """
    resets = set(trainer.resets)
    stopping = extra_state.get(STOPPING, {})
    if resets & {"meters", "optimizer"}:  # as for fairseq's own best
        stopping = {}
    if stopping.get("num_runs") or stopping.get("best") is not None:
        stop = _early_stop()
        stop.best = stopping["best"]
        stop.num_runs = stopping["num_runs"]
    plateau = _plateau(trainer)
    if plateau is not None and not resets & {"lr_scheduler", "optimizer"}:
        plateau.num_bad_epochs = stopping.get("num_bad_epochs", 0)
        if epoch_itr.iterations_in_epoch == 0:  # fairseq saves before this step
            trainer.lr_step(epoch_itr.epoch, extra_state.get("val_loss"))
    return stopping


def _early_stop() -> Any:
    """fairseq's ``should_stop_early``, which keeps the best loss and the validations since as its attributes."""
    modules = training_modules()
    return modules[-1].should_stop_early if modules else SimpleNamespace()  # in a program that calls fairseq's trainer


def _plateau(trainer) -> Any:
    """torch's ``ReduceLROnPlateau``, if the trainer's scheduler has one."""
    return getattr(trainer.lr_scheduler, "lr_scheduler", None)
