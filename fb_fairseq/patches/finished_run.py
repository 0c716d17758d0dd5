"""A finished run that is started again.

Functions that run later, and have only the trainer or the iterator, need what is found when a checkpoint is loaded. So
these have attributes of this module:

    trainer.resets             the parts of the checkpoint that are left out, by options or because the run starts from
                               another one's checkpoint: ``optimizer``, ``lr_scheduler``, ``meters``
    trainer.is_validation_due  see ``fb_fairseq.patches.interruption``, which sets it before a checkpoint is saved
    epoch_itr.is_finished      True: the run is finished, so that no epoch is trained
"""

import inspect
import logging
from types import SimpleNamespace
from typing import Any

from fb_fairseq.patches.limits import limit_reached
from fb_fairseq.patches.training_signals import (
    end_if_requested,
    exiting_in_one_line,
    give_signals_back,
    heed_signals,
)
from fb_fairseq.patches.wrapping import training_modules, wrap_once

logger = logging.getLogger(__name__)

STOPPING = "stopping"  # the entry of a checkpoint's extra_state that this module adds
DUE = "validation_is_due"  # and in it, whether the validation after the checkpoint's last update was not made


def patch_finished_run() -> None:
    """End a run at once if its checkpoint has reached ``--max-update``, ``--max-epoch``, ``--stop-time-hours``,
    ``--stop-min-lr`` or ``--patience``.

    fairseq looks at the number of updates and the time after an update, not before: the same command twice trains a
    finished model one update further, and overwrites its checkpoints. Checkpoints do not say for how many validations
    the loss has not improved, and what the last one did to the learning rate of ``reduce_lr_on_plateau``. A run that
    starts from another one's checkpoint (``--finetune-from-model``, ``--reset-meters``) has its own time.
    """
    from fairseq import checkpoint_utils
    from fairseq.data.iterators import EpochBatchIterator
    from fairseq.trainer import Trainer

    wrap_once(Trainer, "save_checkpoint", "finished_run", _save_checkpoint)
    wrap_once(Trainer, "load_checkpoint", "finished_run", _note_resets)
    wrap_once(checkpoint_utils, "load_checkpoint", "finished_run", _load_checkpoint)
    wrap_once(EpochBatchIterator, "end_of_epoch", "finished_run", _end_of_epoch)
    for module in training_modules():
        wrap_once(module, "train", "finished_run", _train)


def _end_of_epoch(original, self):
    """Whether the epoch has ended; no error if it has not begun, as after loading."""
    return self._cur_epoch_itr is not None and original(self)


def _save_checkpoint(original, self, filename, extra_state):
    stop = _early_stop()
    plateau = _plateau(self)
    stopping = {"best": getattr(stop, "best", None), "num_runs": getattr(stop, "num_runs", 0)}
    if plateau is not None:
        stopping["num_bad_epochs"] = plateau.num_bad_epochs
    if getattr(self, "is_validation_due", False):
        stopping[DUE] = True
    return original(self, filename, {**extra_state, STOPPING: stopping})


def _note_resets(original, self, *args, **kwargs):
    given = inspect.signature(original).bind(self, *args, **kwargs).arguments
    self.resets = [part for part in ("optimizer", "lr_scheduler", "meters") if given.get(f"reset_{part}")]
    extra_state = original(self, *args, **kwargs)
    if extra_state is not None and "meters" in self.resets:
        self._previous_training_time = 0
    return extra_state


def _load_checkpoint(original, cfg, trainer, **kwargs):
    extra_state, epoch_itr = original(cfg, trainer, **kwargs)
    if extra_state is None:
        return extra_state, epoch_itr
    stopping = _restore(trainer, epoch_itr, extra_state)
    if stopping.get(DUE) and not cfg.reset_dataloader and training_modules():
        make_up_for_validation(trainer, epoch_itr)
        return extra_state, epoch_itr
    reached = limit_reached(
        trainer.cfg,
        updates=trainer.get_num_updates(),
        hours=0 if "meters" in trainer.resets else extra_state.get("previous_training_time", 0) / 3600,
        next_epoch=epoch_itr.next_epoch_idx,
        worse=stopping.get("num_runs", 0),
        lr=trainer.get_lr(),
    )
    if reached:
        logger.info(f"this run is finished: {reached}; nothing is trained or written (to go on, change that option)")
        epoch_itr.is_finished = True
    return extra_state, epoch_itr


def _restore(trainer, epoch_itr, extra_state: dict[str, Any]) -> dict[str, Any]:
    """Restore what ``_save_checkpoint`` has added to a checkpoint: the state of early stopping and of the plateau.

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


def make_up_for_validation(trainer, epoch_itr) -> None:
    """Validate and save, as fairseq would have done after the update that a checkpoint ends with, if a signal had not
    come before.

    Args:
        trainer: fairseq's ``Trainer``, with that checkpoint loaded.
        epoch_itr: the iterator over training batches; ``is_finished`` becomes whether training ends here.
    """
    cfg = trainer.cfg
    module = training_modules()[-1]
    logger.info(f"the validation after update {trainer.get_num_updates()} is still to be made")
    place = epoch_itr
    is_at_end = epoch_itr.iterations_in_epoch == 0
    if is_at_end:  # the iterator is that of the next epoch
        before = epoch_itr.epoch - 1
        place = SimpleNamespace(epoch=before, end_of_epoch=lambda: True, state_dict=epoch_itr.state_dict)
    with exiting_in_one_line(trainer):
        interruption = heed_signals(trainer)
        losses, epoch_itr.is_finished = module.validate_and_save(
            cfg,
            trainer,
            trainer.task,
            place,
            valid_subsets=cfg.dataset.valid_subset.split(","),
            end_of_epoch=is_at_end,
        )
        give_signals_back(trainer)
        end_if_requested(cfg, trainer, interruption)
    if is_at_end and not (epoch_itr.is_finished or "lr_scheduler" in trainer.resets):
        trainer.lr_step(place.epoch, losses[0])


def _train(original, cfg, trainer, task, epoch_itr):
    """Train an epoch; of a finished run none: no validation losses, and fairseq is asked to stop."""
    if getattr(epoch_itr, "is_finished", False):
        return [None], True
    return original(cfg, trainer, task, epoch_itr)


def _early_stop() -> Any:
    """fairseq's ``should_stop_early``, which keeps the best loss and the validations since as its attributes."""
    modules = training_modules()
    return modules[-1].should_stop_early if modules else SimpleNamespace()  # in a program that calls fairseq's trainer


def _plateau(trainer) -> Any:
    """torch's ``ReduceLROnPlateau``, if the trainer's scheduler has one."""
    return getattr(trainer.lr_scheduler, "lr_scheduler", None)
