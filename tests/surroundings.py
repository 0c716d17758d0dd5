"""What the tests must not depend on where they are started: waits that end, signals, a HOME that can be written to."""

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from unittest import mock

import pytest

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


def next_tick() -> None:
    """Wait until files get another time than those before: file systems count in steps of some milliseconds."""
    time.sleep(0.02)


def limit_waits() -> None:
    """Let ``Popen.wait`` and ``communicate`` (so ``subprocess.run``) fail after ``LIMIT`` seconds if they are given no
    limit."""
    wait, communicate = subprocess.Popen.wait, subprocess.Popen.communicate
    limited = lambda timeout: LIMIT if timeout is None else timeout
    subprocess.Popen.wait = lambda self, timeout=None: wait(self, limited(timeout))
    subprocess.Popen.communicate = lambda self, input=None, timeout=None: communicate(self, input, limited(timeout))


def writable_home() -> None:
    """Give caches, of compiled loops too, a place where HOME cannot be written to: one for all processes."""
    home = os.path.expanduser("~")
    if not (os.path.isdir(home) and os.access(home, os.W_OK)):
        os.environ["HOME"] = os.path.join(tempfile.gettempdir(), f"fb_fairseq-tests-{os.geteuid()}")
        os.makedirs(os.environ["HOME"], 0o700, exist_ok=True)


def heed_interrupts() -> None:
    """Give SIGINT its default, also in the processes that tests start: a job in the background inherits that it is
    ignored."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def terminated(trainer, method, count, number):
    """``kill`` comes to this process before a method is called where a count is this number; the block must end by the
    SystemExit of that signal.

    Args:
        trainer: the class.
        method: the name of its method, which takes no arguments.
        count: the name of its attribute that counts.
    """
    call = getattr(trainer, method)

    def signalled(self):
        if getattr(self, count) == number:
            os.kill(os.getpid(), signal.SIGTERM)
        return call(self)

    with mock.patch.object(trainer, method, signalled), pytest.raises(SystemExit) as stop:
        yield
    assert stop.value.code == 128 + signal.SIGTERM
