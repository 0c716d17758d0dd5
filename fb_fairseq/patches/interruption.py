"""Ctrl-C and ``kill`` in ``fairseq-train``.

Signals are heeded from the beginning of the first epoch to the end of the last one, also while fairseq validates and
saves between two epochs:

    a signal comes in                  saved is                          training is ended by
    an update, or fairseq's            fairseq's own checkpoints,        ``_validate_and_save``
    validation and saving after it     and the last one
    a validation                       the last checkpoint, in which     the same; at an epoch's end
                                       the validation is due             ``_train_interruptibly``
    an update with which fairseq       fairseq's own checkpoints         ``_train_interruptibly``,
    ends training                                                        after the epoch
    what follows an epoch              the last checkpoint               ``_train_interruptibly``,
                                                                         before the next epoch

A validation that is due is made when a run resumes (``due_validation.py``).

All of fairseq's functions that are wrapped here are given the trainer, which has the attributes of
``training_signals.py``, and

    trainer.is_validation_due  whether the checkpoint that is being saved lacks the validation after its last update
                               (see ``fb_fairseq.patches.stopping_state``)
"""

import math

from omegaconf import OmegaConf

from fb_fairseq.interruption import Interrupted
from fb_fairseq.patches.limits import limit_reached
from fb_fairseq.patches.processes import end_with_parent
from fb_fairseq.patches.training_signals import (
    end_if_requested,
    exiting_in_one_line,
    give_signals_back,
    heed_signals,
    without_last_checkpoint,
)
from fb_fairseq.patches.wrapping import training_modules, wrap_once

# Options with which fairseq writes checkpoint_last.pt only, and removes nothing.
LAST_ONLY = {
    "no_epoch_checkpoints": True,
    "save_interval_updates": 0,
    "keep_interval_updates": -1,
    "keep_last_epochs": -1,
    "keep_best_checkpoints": -1,
}


def patch_interruption() -> None:
    """Write a checkpoint on Ctrl-C and ``kill``, and print one line. In fairseq all updates since the last checkpoint
    are lost.

    The update ends first. A validation does not: it may take long, and is made when the run resumes. With several
    processes nothing is changed: torchrun stops them.
    """
    from fairseq.trainer import Trainer

    Trainer.interruption = None
    for module in training_modules():
        wrap_once(module, "train", "interruption", _train_interruptibly)
        wrap_once(module, "validate", "interruption", _validate)
        wrap_once(module, "validate_and_save", "interruption", _validate_and_save)


def _save(cfg, trainer, epoch_itr, is_validation_due: bool = False) -> None:
    """Write checkpoint_last.pt, and no other: the others are those of a run without interruption."""
    from fairseq import checkpoint_utils

    if not without_last_checkpoint(cfg):
        trainer.is_validation_due = is_validation_due
        checkpoint_utils.save_checkpoint(OmegaConf.merge(cfg.checkpoint, LAST_ONLY), trainer, epoch_itr, None)


def _train_interruptibly(original, cfg, trainer, task, epoch_itr):
    """Train one epoch, and end where a signal asks for it."""
    end_with_parent()
    with exiting_in_one_line(trainer):
        interruption = heed_signals(trainer)
        if interruption.requested:  # since the last update of the epoch before
            _save(cfg, trainer, epoch_itr)
            end_if_requested(cfg, trainer, interruption)
        results = original(cfg, trainer, task, epoch_itr)
        # It was the last epoch, or the validation at its end was cut.
        if results[1] or epoch_itr.next_epoch_idx > (cfg.optimization.max_epoch or math.inf):
            give_signals_back(trainer)
            end_if_requested(cfg, trainer, interruption)
        return results


class _ValidationCut(BaseException):
    """A signal came before the end of a validation."""


def _validate(original, cfg, trainer, task, epoch_itr, subsets):
    interruption = trainer.interruption
    if interruption is None:
        return original(cfg, trainer, task, epoch_itr, subsets)
    try:
        with interruption.acting_at_once():
            return original(cfg, trainer, task, epoch_itr, subsets)
    except Interrupted:
        raise
    except KeyboardInterrupt:
        raise _ValidationCut from None


def _validate_and_save(original, cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch):
    """Validate and save as fairseq does, and end training here if a signal asks for it. Where fairseq itself ends the
    epoch or training after this, it does so first, and logs it: then ``_train_interruptibly`` ends training.
    """
    interruption = trainer.interruption
    if interruption is None:
        return original(cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch)
    try:
        losses, stops = original(cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch)
        is_cut = False
    except _ValidationCut:
        losses = [None]
        stops = end_of_epoch or _ends_without_validation(cfg, trainer)
        is_cut = True
    ends_here = interruption.requested and not (stops or end_of_epoch)  # asked once: a signal may come at any line
    if is_cut or ends_here:
        _save(cfg, trainer, epoch_itr, is_validation_due=is_cut)
    if ends_here:
        end_if_requested(cfg, trainer, interruption)
    return losses, stops


def _ends_without_validation(cfg, trainer) -> bool:
    """Whether training ends here, whatever the validation would have said."""
    hours = trainer.cumulative_training_time() / 3600
    return limit_reached(cfg, updates=trainer.get_num_updates(), hours=hours) is not None
