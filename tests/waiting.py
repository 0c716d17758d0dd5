"""Waits that end: for a condition, and for other processes."""

import signal
import subprocess
import time

LIMIT = 500.0  # seconds; less than the limit of a test in pyproject.toml


def wait_for(condition, seconds: float = LIMIT, pause: float = 0.02):
    """Wait until the condition is true, and return what it returns."""
    end = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < end, f"waited for {seconds:.0f} s"
        time.sleep(pause)


def limit_waits() -> None:
    """Let ``Popen.wait`` and ``communicate`` (so ``subprocess.run``) fail after ``LIMIT`` seconds if they are given no
    limit."""
    for name in ("wait", "communicate"):
        original = getattr(subprocess.Popen, name)

        def limited(self, *args, original=original, timeout=None, **kwargs):
            return original(self, *args, timeout=LIMIT if timeout is None else timeout, **kwargs)

        setattr(subprocess.Popen, name, limited)


def heed_interrupts() -> None:
    """Give SIGINT its default, also in the processes that tests start: a job in the background inherits that it is
    ignored."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
