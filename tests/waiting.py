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
    wait, communicate = subprocess.Popen.wait, subprocess.Popen.communicate
    limited = lambda timeout: LIMIT if timeout is None else timeout
    subprocess.Popen.wait = lambda self, timeout=None: wait(self, limited(timeout))
    subprocess.Popen.communicate = lambda self, input=None, timeout=None: communicate(self, input, limited(timeout))


def heed_interrupts() -> None:
    """Give SIGINT its default, also in the processes that tests start: a job in the background inherits that it is
    ignored."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
