"""The end of a run: Ctrl-C, and a finished run that is started again."""

import inspect
import logging
import multiprocessing
import os
import signal
import sys
import threading
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

from fb_fairseq.errors import flag
from fb_fairseq.patches.wrapping import wrap_once

logger = logging.getLogger(__name__)

TRAINING_MODULES = ("fairseq_cli.train", "__main__")  # the second under python -m fairseq_cli.train
SIGNALS = (signal.SIGINT, signal.SIGTERM)
_current: Any = None  # the Interruption of the epoch that runs
STOPPING = "stopping"  # the entry of a checkpoint's extra_state that this module adds


class Interruption:
    """Remembers a signal until the update is finished, and the validation that is due after it: a resumed run would not
    make up for it, and choose another best checkpoint. During validation, and the second time, it acts at once."""

    def __init__(self):
        self.requested = 0  # the signal that asked for the end; 0: none did
        self.at_once = False  # whether it raises KeyboardInterrupt

    def handle(self, number: int, frame) -> None:
        """Handle the signal."""
        again, self.requested = self.requested, number
        if again or self.at_once:
            raise KeyboardInterrupt


def patch_interruption() -> None:
    """Write a checkpoint on Ctrl-C and ``kill``, and print one line. In fairseq all updates since the last checkpoint
    are lost.

    With one process; several are stopped by torchrun. In a background job, which ignores Ctrl-C, ``kill`` alone does.
    """
    for name in TRAINING_MODULES:
        module = sys.modules.get(name)
        if hasattr(module, "validate_and_save") and hasattr(module, "train"):
            wrap_once(module, "train", "interruption", _train_interruptibly)
            wrap_once(module, "validate_and_save", "interruption", _validate_and_save)


def _train_interruptibly(original, cfg, trainer, task, epoch_itr):
    global _current
    end_with_parent()
    if trainer.data_parallel_world_size > 1 or threading.current_thread() is not threading.main_thread():
        return original(cfg, trainer, task, epoch_itr)
    _current = Interruption()
    heeded = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, _current.handle) for number in heeded}
    try:
        return original(cfg, trainer, task, epoch_itr)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _current = None


def end_with_parent() -> None:
    """End a process of fairseq's, of which each GPU has one, with the process that has spawned it.

    torch asks for SIGINT then, which a job in the background ignores: killed, it would leave its processes behind."""
    if multiprocessing.parent_process() is not None and signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        torch.multiprocessing._prctl_pr_set_pdeathsig(signal.SIGTERM)


def _validate_and_save(original, cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch):
    if _current is None:
        return original(cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch)
    updates = trainer.get_num_updates()
    try:
        _current.at_once = not _current.requested
        results = original(cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch)
        if not _current.requested or results[1]:  # training ends anyway
            _current.at_once = False
            return results
    except KeyboardInterrupt:
        pass
    number, _current.at_once, _current.requested = _current.requested, False, 0
    _save(cfg, trainer, epoch_itr)
    _leave(cfg, updates, 128 + number)


def _save(cfg, trainer, epoch_itr) -> None:
    from fairseq import checkpoint_utils

    if not cfg.checkpoint.no_save:
        checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, epoch_itr, None)


def _leave(cfg, updates: int, status: int) -> None:
    """Print one line and exit, with the status by which shells report the signal."""
    last = cfg.optimization.max_update
    of = f" of {last}" if last else ""
    remedy = "--no-save: nothing was written" if cfg.checkpoint.no_save else "run the same command again to resume"
    sys.stdout.flush()
    program = os.path.basename(sys.argv[0])
    print(f"{program}: interrupted at update {updates}{of}; {remedy}", file=sys.__stderr__, flush=True)
    sys.exit(status)


def patch_finished_run() -> None:
    """End a run at once if its checkpoint has reached ``--max-update``, ``--max-epoch``, ``--stop-time-hours``,
    ``--stop-min-lr`` or ``--patience``.

    fairseq looks at the number of updates and the time after an update, not before: the same command twice trains a
    finished model one update further, and overwrites its checkpoints. Checkpoints do not say for how many validations
    the loss has not improved, and what the last one did to the learning rate of ``reduce_lr_on_plateau``. A run that
    starts from another one's checkpoint (``--finetune-from-model``, ``--reset-meters``) has its own time."""
    from fairseq import checkpoint_utils
    from fairseq.trainer import Trainer

    wrap_once(Trainer, "save_checkpoint", "finished_run", _save_checkpoint)
    wrap_once(Trainer, "load_checkpoint", "finished_run", _note_resets)
    wrap_once(checkpoint_utils, "load_checkpoint", "finished_run", _load_checkpoint)
    for name in TRAINING_MODULES:
        module = sys.modules.get(name)
        if hasattr(module, "validate_and_save") and hasattr(module, "train"):
            wrap_once(module, "train", "finished_run", _train)


def _save_checkpoint(original, self, filename, extra_state):
    stop, plateau = _early_stop(), _plateau(self)
    stopping = {"best": getattr(stop, "best", None), "num_runs": getattr(stop, "num_runs", 0)}
    if plateau is not None:
        stopping["num_bad_epochs"] = plateau.num_bad_epochs
    return original(self, filename, {**extra_state, STOPPING: stopping})


class _Resets(NamedTuple):
    """The parts of a checkpoint that a trainer leaves out: by options, or because it starts from another run's."""

    optimizer: bool = False
    scheduler: bool = False
    meters: bool = False


def _note_resets(original, self, *args, **kwargs):
    given = inspect.signature(original).bind(self, *args, **kwargs).arguments
    self.resets = _Resets(*(given.get(f"reset_{part}", False) for part in ("optimizer", "lr_scheduler", "meters")))
    extra_state = original(self, *args, **kwargs)
    if extra_state is not None and self.resets.meters:
        self._previous_training_time = 0
    return extra_state


def _load_checkpoint(original, cfg, trainer, **kwargs):
    extra_state, epoch_itr = original(cfg, trainer, **kwargs)
    if extra_state is not None:
        resets, stopping = trainer.resets, extra_state.get(STOPPING, {})
        if resets.meters or resets.optimizer:  # as for fairseq's own best
            stopping = {}
        worse = stopping.get("num_runs", 0)
        if worse or stopping.get("best") is not None:
            _early_stop().best, _early_stop().num_runs = stopping["best"], worse
        if _plateau(trainer) is not None and not (resets.scheduler or resets.optimizer):
            _plateau(trainer).num_bad_epochs = stopping.get("num_bad_epochs", 0)
            if epoch_itr.iterations_in_epoch == 0:  # fairseq saves before this step
                trainer.lr_step(epoch_itr.epoch, extra_state.get("val_loss"))
        reached = limit_reached(
            trainer.cfg,
            trainer.get_num_updates(),
            epoch_itr.next_epoch_idx,
            0 if resets.meters else extra_state.get("previous_training_time", 0) / 3600,
            worse,
            trainer.get_lr(),
        )
        if reached:
            logger.info(f"this run is finished: {reached}; nothing is trained or written (to go on, change it)")
            epoch_itr.is_finished = True
    return extra_state, epoch_itr


def _train(original, cfg, trainer, task, epoch_itr):
    """One epoch: no validation losses and the request to stop, if there is nothing to train."""
    if getattr(epoch_itr, "is_finished", False):
        return [None], True
    return original(cfg, trainer, task, epoch_itr)


def _early_stop() -> Any:
    """fairseq's ``should_stop_early``, which keeps the best loss and the validations since as its attributes."""
    modules = (sys.modules.get(name) for name in reversed(TRAINING_MODULES))
    found = (module.should_stop_early for module in modules if hasattr(module, "should_stop_early"))
    return next(found, SimpleNamespace())  # in a program that calls fairseq's trainer


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
        lr: the learning rate."""
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
