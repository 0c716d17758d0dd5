"""The validation that a checkpoint lacks, because a signal came before its end (see ``interruption.py``)."""

import logging
from types import SimpleNamespace

from fb_fairseq.patches.training_signals import (
    end_if_requested,
    exiting_in_one_line,
    give_signals_back,
    heed_signals,
)
from fb_fairseq.patches.wrapping import training_modules

logger = logging.getLogger(__name__)


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
    is_at_end = epoch_itr.iterations_in_epoch == 0
    place = epoch_before(epoch_itr) if is_at_end else epoch_itr
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


def epoch_before(epoch_itr) -> SimpleNamespace:
    """The epoch that has ended, of an iterator that stands at the beginning of the next one."""
    return SimpleNamespace(epoch=epoch_itr.epoch - 1, end_of_epoch=lambda: True, state_dict=epoch_itr.state_dict)
