"""Ctrl-C and ``kill`` write a checkpoint, so that the same command resumes where it was stopped."""

import multiprocessing
import os
import signal
import sys
import threading
from typing import Any

import torch

from fb_fairseq.patches.wrapping import wrap_once

TRAINING_MODULES = ("fairseq_cli.train", "__main__")  # the second under python -m fairseq_cli.train
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Remembers a signal until the update is finished, and the validation that is due after it: a resumed run would not
    make up for it, and choose another best checkpoint. During validation, and the second time, it acts at once.

    Attributes:
        requested: the signal that asked for the end; 0: none did.
        at_once: whether it raises KeyboardInterrupt.
    """

    def __init__(self):
        self.requested = 0
        self.at_once = False

    def handle(self, number: int, frame) -> None:
        """Handle the signal."""
        again, self.requested = self.requested, number
        if again or self.at_once:
            raise KeyboardInterrupt


def patch_interruption() -> None:
    """Write a checkpoint on Ctrl-C and ``kill``, and print one line. In fairseq all updates since the last checkpoint
    are lost.

    With one process; several are stopped by torchrun. In a background job, which ignores Ctrl-C, ``kill`` alone does.

    Affects: fairseq 0.12.2, fairseq-fixed 0.12.3.1.
    Remove when: a supported fairseq writes one; none does yet.
    """
    for name in TRAINING_MODULES:
        module = sys.modules.get(name)
        if hasattr(module, "validate_and_save") and hasattr(module, "train"):
            wrap_once(module, "train", "interruption", _train_interruptibly)
            wrap_once(module, "validate_and_save", "interruption", _validate_and_save)


_current: Any = None  # the Interruption of the epoch that runs


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

    torch asks for SIGINT then, which a job in the background ignores: killed, it would leave its processes behind.
    """
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
