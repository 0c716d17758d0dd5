"""Ctrl-C and ``kill`` in training, the same in every trainer: the update ends, all is saved, and one line says how the
run goes on.
"""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
RESUME = "run the same command again to resume"


class Interrupted(KeyboardInterrupt):
    """A signal has ended training; the message says where. ``number``: the signal's."""

    def __init__(self, message: str, number: int):
        super().__init__(message)
        self.status = 128 + number  # as shells report a signal


class Interruption:
    """The signal that asks a trainer to end after its update. The second one does not wait for that.

    Attributes:
        requested: number of the first signal; 0: there was none.
    """

    def __init__(self):
        self.requested = 0
        self._acts_at_once = False

    def handle(self, number: int, frame) -> None:
        """Handle a signal."""
        again = self.requested
        self.requested = self.requested or number
        if again:
            raise Interrupted(f"interrupted again, before all was saved; {RESUME} from the last checkpoint", number)
        if self._acts_at_once:
            raise KeyboardInterrupt

    @contextmanager
    def acting_at_once(self) -> Iterator[None]:
        """Within the block, which may take long and can be repeated, raise ``KeyboardInterrupt`` already at the first
        signal, even if it came before the block.
        """
        self._acts_at_once = True
        try:
            if self.requested:
                raise KeyboardInterrupt
            yield
        finally:
            self._acts_at_once = False

    def end_if_requested(self, update: int, updates: int | None, remedy: str = RESUME) -> None:
        """Raise ``Interrupted`` if there was a signal. To be called when everything is saved.

        Args:
            update: how many were made.
            updates: how many training has; None, 0: there is no limit.
            remedy: how to go on.
        """
        if self.requested:
            of = f" of {updates}" if updates else ""
            raise Interrupted(f"interrupted at update {update}{of}; {remedy}", self.requested)


@contextmanager
def heeding_signals() -> Iterator[Interruption]:
    """Within the block, remember SIGINT and SIGTERM. Those that are ignored stay so: a job in the background ignores
    SIGINT. In a thread other than the main one, nothing changes.
    """
    interruption = Interruption()
    with handling(SIGNALS, interruption.handle):
        yield interruption


@contextmanager
def handling(signals: Iterable[int], handler: Callable[[int, Any], None]) -> Iterator[None]:
    """Within the block, call a handler for these signals, but for those that are ignored. In a thread other than the
    main one, nothing changes. ``handler``: called with the signal's number and the frame, as by ``signal.signal``.
    """
    before = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number in signals:
                if signal.getsignal(number) not in (signal.SIG_IGN, None):  # None: not set from Python
                    before[number] = signal.signal(number, handler)
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
