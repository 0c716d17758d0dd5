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

from fb_fairseq.patches.due_validation import make_up_for_validation
from fb_fairseq.patches.limits import limit_reached
from fb_fairseq.patches.stopping_state import DUE, restore_stopping
from fb_fairseq.patches.wrapping import training_modules, wrap_once

logger = logging.getLogger(__name__)


def patch_finished_run() -> None:
    """End a run at once if its checkpoint has reached ``--max-update``, ``--max-epoch``, ``--stop-time-hours``,
    ``--stop-min-lr`` or ``--patience``.

    fairseq looks at the number of updates and the time after an update, not before: the same command twice trains a
    finished model one update further, and overwrites its checkpoints. A run that starts from another one's checkpoint
    (``--finetune-from-model``, ``--reset-meters``) has its own time.
    """
    from fairseq import checkpoint_utils
    from fairseq.data.iterators import EpochBatchIterator
    from fairseq.trainer import Trainer

    wrap_once(Trainer, "load_checkpoint", "finished_run", _note_resets)
    wrap_once(checkpoint_utils, "load_checkpoint", "finished_run", _load_checkpoint)
    wrap_once(EpochBatchIterator, "end_of_epoch", "finished_run", _end_of_epoch)
    for module in training_modules():
        wrap_once(module, "train", "finished_run", _train)


def _end_of_epoch(original, self):
    """Whether the epoch has ended; no error if it has not begun, as after loading."""
    return self._cur_epoch_itr is not None and original(self)


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
    stopping = restore_stopping(trainer, epoch_itr, extra_state)
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


def _train(original, cfg, trainer, task, epoch_itr):
    """Train an epoch; of a finished run none: no validation losses, and fairseq is asked to stop."""
    if getattr(epoch_itr, "is_finished", False):
        return [None], True
    return original(cfg, trainer, task, epoch_itr)
