"""The end of a run: Ctrl-C, and a finished run that is started again."""

import contextlib
import inspect
import logging
import math
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from omegaconf import OmegaConf

from fb_fairseq.errors import flag
from fb_fairseq.interruption import RESUME, Interrupted, Interruption, heeding_signals
from fb_fairseq.patches.wrapping import wrap_once

logger = logging.getLogger(__name__)

TRAINING_MODULES = ("fairseq_cli.train", "__main__")  # the second under python -m fairseq_cli.train
# Options with which fairseq writes checkpoint_last.pt only, and removes nothing.
LAST_ONLY = {
    "no_epoch_checkpoints": True,
    "save_interval_updates": 0,
    "keep_interval_updates": -1,
    "keep_last_epochs": -1,
    "keep_best_checkpoints": -1,
}
STOPPING = "stopping"  # the entry of a checkpoint's extra_state that this module adds
DUE = "validation_is_due"  # and in it, whether the validation after the checkpoint's last update was not made
_current: Interruption | None = None  # of the training that runs, also between its epochs
_handlers = contextlib.ExitStack()  # which give the signals back at its end


def patch_interruption() -> None:
    """Write a checkpoint on Ctrl-C and ``kill``, and print one line. In fairseq all updates since the last checkpoint
    are lost.

    The update ends first. A validation does not: it may take long, and is made when the run resumes. With one process;
    several are stopped by torchrun.
    """
    for module in training_modules():
        wrap_once(module, "train", "interruption", _train_interruptibly)
        wrap_once(module, "validate", "interruption", _validate)
        wrap_once(module, "validate_and_save", "interruption", _validate_and_save)


def training_modules() -> list[Any]:
    """The modules of ``fairseq-train`` that are imported, the one that runs last."""
    modules = (sys.modules.get(name) for name in TRAINING_MODULES)
    return [module for module in modules if hasattr(module, "validate_and_save") and hasattr(module, "train")]


@contextlib.contextmanager
def _interruptible(cfg, trainer) -> Iterator[Interruption]:
    """Heed signals within the block, and after it until ``_give_signals_back``. If it is interrupted, print one line,
    and exit with the status by which shells report the signal.
    """
    global _current
    if trainer.data_parallel_world_size > 1:
        yield Interruption()
        return
    if _current is None:
        _current = _handlers.enter_context(heeding_signals())
    try:
        yield _current
    except Interrupted as error:
        _give_signals_back()
        sys.stdout.flush()
        print(f"{os.path.basename(sys.argv[0])}: {error}", file=sys.__stderr__, flush=True)
        sys.exit(error.status)
    except BaseException:
        _give_signals_back()
        raise


def _give_signals_back() -> None:
    global _current
    _current = None
    _handlers.close()


def _end_if_requested(cfg, trainer, interruption: Interruption) -> None:
    """End training if there was a signal. To be called when everything is saved."""
    without = _without_last_checkpoint(cfg)
    remedy = f"{without}: nothing was saved" if without else RESUME
    interruption.end_if_requested(trainer.get_num_updates(), cfg.optimization.max_update, remedy)


def _without_last_checkpoint(cfg) -> str:
    """The option with which fairseq does not write checkpoint_last.pt; empty without one."""
    given = (name for name in ("no_save", "no_last_checkpoints") if getattr(cfg.checkpoint, name))
    return next(map(flag, given), "")


def _save(cfg, trainer, epoch_itr, is_validation_due: bool = False) -> None:
    """Write checkpoint_last.pt, and no other: the others are those of a run without interruption."""
    from fairseq import checkpoint_utils

    if not _without_last_checkpoint(cfg):
        trainer.is_validation_due = is_validation_due
        checkpoint_utils.save_checkpoint(OmegaConf.merge(cfg.checkpoint, LAST_ONLY), trainer, epoch_itr, None)


def _train_interruptibly(original, cfg, trainer, task, epoch_itr):
    """One epoch."""
    end_with_parent()
    with _interruptible(cfg, trainer) as interruption:
        if interruption.requested:  # since the last update of the epoch before
            _save(cfg, trainer, epoch_itr)
            _end_if_requested(cfg, trainer, interruption)
        results = original(cfg, trainer, task, epoch_itr)
        if results[1] or epoch_itr.next_epoch_idx > (cfg.optimization.max_epoch or math.inf):  # it is the last epoch
            _give_signals_back()
            _end_if_requested(cfg, trainer, interruption)
        return results


def end_with_parent() -> None:
    """End a process of fairseq's, of which each GPU has one, with the process that has spawned it.

    torch asks for SIGINT then, which a job in the background ignores: killed, it would leave its processes behind.
    """
    if multiprocessing.parent_process() is not None and signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        torch.multiprocessing._prctl_pr_set_pdeathsig(signal.SIGTERM)


class _ValidationCut(BaseException):
    """A signal came before the end of a validation."""


def _validate(original, *args, **kwargs):
    if _current is None:
        return original(*args, **kwargs)
    try:
        with _current.acting_at_once():
            return original(*args, **kwargs)
    except Interrupted:
        raise
    except KeyboardInterrupt:
        raise _ValidationCut from None


def _validate_and_save(original, cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch):
    if _current is None:
        return original(cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch)
    interruption = _current
    try:
        results = original(cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch)
        if not interruption.requested or results[1] or end_of_epoch:  # fairseq first ends the epoch, and logs it
            return results
        _save(cfg, trainer, epoch_itr)
    except _ValidationCut:
        _save(cfg, trainer, epoch_itr, is_validation_due=True)
        if end_of_epoch or _is_at_a_limit(cfg, trainer):
            return [None], True
    _end_if_requested(cfg, trainer, interruption)


def _is_at_a_limit(cfg, trainer) -> bool:
    """Whether training ends after this update, whatever its validation says."""
    hours = trainer.cumulative_training_time() / 3600
    return limit_reached(cfg, trainer.get_num_updates(), 0, hours, 0, math.inf) is not None


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
    # The parts of a checkpoint that are left out: by options, or because the run starts from another one's.
    self.resets = [part for part in ("optimizer", "lr_scheduler", "meters") if given.get(f"reset_{part}")]
    extra_state = original(self, *args, **kwargs)
    if extra_state is not None and "meters" in self.resets:
        self._previous_training_time = 0
    return extra_state


def _load_checkpoint(original, cfg, trainer, **kwargs):
    extra_state, epoch_itr = original(cfg, trainer, **kwargs)
    if extra_state is not None:
        resets = trainer.resets
        stopping = extra_state.get(STOPPING, {})
        if "meters" in resets or "optimizer" in resets:  # as for fairseq's own best
            stopping = {}
        worse = stopping.get("num_runs", 0)
        if worse or stopping.get("best") is not None:
            _early_stop().best = stopping["best"]
            _early_stop().num_runs = worse
        if _plateau(trainer) is not None and not {"lr_scheduler", "optimizer"} & {*resets}:
            _plateau(trainer).num_bad_epochs = stopping.get("num_bad_epochs", 0)
            if epoch_itr.iterations_in_epoch == 0:  # fairseq saves before this step
                trainer.lr_step(epoch_itr.epoch, extra_state.get("val_loss"))
        if stopping.get(DUE) and not cfg.reset_dataloader and training_modules():
            _make_up_for_validation(trainer, epoch_itr)
            return extra_state, epoch_itr
        reached = limit_reached(
            trainer.cfg,
            trainer.get_num_updates(),
            epoch_itr.next_epoch_idx,
            0 if "meters" in resets else extra_state.get("previous_training_time", 0) / 3600,
            worse,
            trainer.get_lr(),
        )
        if reached:
            logger.info(f"this run is finished: {reached}; nothing is trained or written (to go on, change it)")
            epoch_itr.is_finished = True
    return extra_state, epoch_itr


def _make_up_for_validation(trainer, epoch_itr) -> None:
    """Validate and save, as fairseq would have done after the update that the checkpoint ends with."""
    cfg = trainer.cfg
    module = training_modules()[-1]
    logger.info(f"the validation after update {trainer.get_num_updates()} is still to be made")
    place = epoch_itr
    is_at_end = epoch_itr.iterations_in_epoch == 0
    if is_at_end:  # the iterator is that of the next epoch
        before = epoch_itr.epoch - 1
        place = SimpleNamespace(epoch=before, end_of_epoch=lambda: True, state_dict=epoch_itr.state_dict)
    subsets = cfg.dataset.valid_subset.split(",")
    with _interruptible(cfg, trainer) as interruption:
        losses, epoch_itr.is_finished = module.validate_and_save(cfg, trainer, trainer.task, place, subsets, is_at_end)
        _give_signals_back()
        _end_if_requested(cfg, trainer, interruption)
    if is_at_end and not (epoch_itr.is_finished or "lr_scheduler" in trainer.resets):
        trainer.lr_step(place.epoch, losses[0])


def _train(original, cfg, trainer, task, epoch_itr):
    """One epoch: no validation losses and the request to stop, if there is nothing to train."""
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


def limit_reached(cfg, updates: int, next_epoch: int, hours: float, worse: int, lr: float) -> str | None:
    """The option that ends training here, and how far training has come; None if it goes on.

    Args:
        cfg: fairseq's configuration.
        updates: the number of updates so far.
        next_epoch: the epoch that would go on or begin, counted from 1.
        hours: the time that training has taken so far.
        worse: the number of validations since the best one.
        lr: the learning rate.
    """
    limits, patience = cfg.optimization, cfg.checkpoint.patience
    if limits.max_update and updates >= limits.max_update:
        return f"update {updates} of {flag('max_update')} {limits.max_update}"
    if limits.max_epoch and next_epoch > limits.max_epoch:
        return f"epoch {next_epoch - 1} of {flag('max_epoch')} {limits.max_epoch}"
    if limits.stop_time_hours > 0 and hours > limits.stop_time_hours:
        return f"{hours:.4g} hours of {flag('stop_time_hours')} {limits.stop_time_hours:g}"
    if lr <= limits.stop_min_lr:
        return f"learning rate {lr:g}, {flag('stop_min_lr')} {limits.stop_min_lr:g}"
    if 0 < patience <= worse:
        return f"{worse} validations without improvement, {flag('patience')} {patience}"
    return None
