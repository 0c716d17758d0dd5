"""Signals during a training with fairseq: from when on they are heeded, and how it ends.

fairseq's trainer has these attributes:

    trainer.interruption   the ``Interruption`` of the training; None where signals are not heeded: with several
                           processes, and before and after training
    trainer.signals        the ``ExitStack`` that gives the signals back
"""

import contextlib
import os
import sys
from collections.abc import Iterator

from fb_fairseq.errors import flag
from fb_fairseq.interruption import RESUME, Interrupted, Interruption, heeding_signals


def heed_signals(trainer) -> Interruption:
    """Heed signals from now on, until ``give_signals_back``. Returns the interruption that they ask for; with several
    processes, one that never comes.
    """
    if trainer.data_parallel_world_size > 1:
        return Interruption()
    if trainer.interruption is None:
        trainer.signals = contextlib.ExitStack()
        trainer.interruption = trainer.signals.enter_context(heeding_signals())
    return trainer.interruption


@contextlib.contextmanager
def exiting_in_one_line(trainer) -> Iterator[None]:
    """If the block is interrupted, print one line, and exit with the status by which shells report the signal. Whatever
    it raises, signals are given back.
    """
    try:
        yield
    except BaseException as error:
        give_signals_back(trainer)
        if not isinstance(error, Interrupted):
            raise
        sys.stdout.flush()
        print(f"{os.path.basename(sys.argv[0])}: {error}", file=sys.__stderr__, flush=True)
        sys.exit(error.status)


def give_signals_back(trainer) -> None:
    """Heed signals no longer: they do what they did before training."""
    if trainer.interruption is not None:
        trainer.interruption = None
        trainer.signals.close()


def end_if_requested(cfg, trainer, interruption: Interruption) -> None:
    """End training if there was a signal. To be called when everything is saved."""
    without = without_last_checkpoint(cfg)
    remedy = f"{without}: nothing was saved" if without else RESUME
    interruption.end_if_requested(trainer.get_num_updates(), cfg.optimization.max_update, remedy)


def without_last_checkpoint(cfg) -> str:
    """The option with which fairseq does not write checkpoint_last.pt; empty without one."""
    for name in ("no_save", "no_last_checkpoints"):
        if getattr(cfg.checkpoint, name):
            return flag(name)
    return ""
