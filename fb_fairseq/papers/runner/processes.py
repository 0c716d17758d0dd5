"""The processes that a recipe starts, and how Ctrl-C reaches all of them; several runs at a time (``--jobs``)."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

from fb_fairseq.errors import UserError, single_line

# (Windows has no SIGHUP.)
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Interrupted(UserError):
    """The recipe was interrupted. Run it again to resume."""


class Processes:
    """Starts processes, each in a group of its own, and interrupts them all together."""

    def __init__(self):
        self.interrupted = False
        self._starting = 0  # processes that are not in the list yet
        self._running: list[subprocess.Popen] = []
        self._lock = threading.RLock()  # re-entrant, as a signal may arrive while it is held

    @contextmanager
    def start(self, words: list[str], **options) -> Iterator[subprocess.Popen]:
        """Start a process, and wait for it at the end of the block."""
        self.check()
        try:
            with self._lock:
                self._starting += 1
                try:
                    process = subprocess.Popen(words, start_new_session=True, **options)
                    self._running.append(process)
                finally:
                    self._starting -= 1
        except FileNotFoundError:
            raise UserError(
                f"{words[0]}: no such program beside this Python or on PATH; install fb_fairseq with its extras, "
                "pip install 'fb_fairseq[plot,translation,rl]'"
            ) from None
        try:
            if self.interrupted:  # while it was starting
                self._interrupt(process)
            yield process
            process.wait()
        finally:
            if process.poll() is None:
                self._interrupt(process)
                process.wait()
            with self._lock:
                self._running.remove(process)

    def check(self) -> None:
        """Raise ``Interrupted`` if the recipe is to stop."""
        if self.interrupted:
            raise Interrupted("interrupted; run the same command again to resume")

    @staticmethod
    def _interrupt(process: subprocess.Popen, number: int = signal.SIGINT) -> None:
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:  # it has just ended
            pass

    @contextmanager
    def forwarding_signals(self) -> Iterator[None]:
        """Within the block, Ctrl-C, SIGTERM and SIGHUP interrupt all processes; without any, this one. A second Ctrl-C
        ends at once what is still running."""

        def stop(number, frame):
            again, self.interrupted = self.interrupted, True
            with self._lock:
                running = [process for process in self._running if process.poll() is None]
            for process in running:
                self._interrupt(process, signal.SIGTERM if again else signal.SIGINT)
            if not running and not self._starting:
                raise KeyboardInterrupt

        def ignore(number, frame):
            """Under ``nohup`` or in the background. (Processes would inherit SIG_IGN, and SIGINT is to stop them.)"""

        ignored = [number for number in SIGNALS if signal.getsignal(number) == signal.SIG_IGN]
        before = {number: signal.signal(number, ignore if number in ignored else stop) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


RUNNING = Processes()  # those of this program


class Jobs:
    """Runs functions, each with a shell of its own: one after the other, or ``number`` at a time. With ``keep_going``,
    a run that fails does not stop the others, even if they are run one by one."""

    def __init__(self, shell: Any, number: int = 1, keep_going: bool = False):
        self.shell = shell
        self.number = number if shell.parallel else 1
        self._at_once = self.number == 1 and not (keep_going and shell.parallel)
        self._pool = ThreadPoolExecutor(self.number)
        self._started: list[tuple[str, Future]] = []
        if self.number > 1 and "OMP_NUM_THREADS" not in os.environ:
            shell.variables["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // self.number))

    def start(self, name: str, function: Callable[[Any], None]) -> None:
        """Run ``function(shell)``: now or, with two jobs or more, as soon as fewer are running."""
        if self._at_once:
            function(self.shell)
        else:
            shell = self.shell.named(name) if self.number > 1 else self.shell
            self._started.append((name, self._pool.submit(function, shell)))

    def wait(self, logs: str = "the lines with their names above") -> None:
        """Wait for all runs, and name those that have failed."""
        failed = []
        while self._started:
            name, run = self._started[0]
            wait([run], timeout=1)  # in pieces, in which signals arrive
            if not run.done():
                continue
            self._started.pop(0)
            error = run.exception()
            if isinstance(error, UserError):
                if not isinstance(error, Interrupted):
                    print(f"[{name}] error: {single_line(str(error))}", file=sys.stderr, flush=True)
                failed.append(name)
            elif error is not None:
                raise error
        RUNNING.check()
        if failed:
            raise UserError(f"some runs failed: {' '.join(failed)}; see {logs}. Run the same command again to resume")
