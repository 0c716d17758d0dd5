"""The page of ``explore``, served by a process of its own."""

import pathlib
import signal
from contextlib import contextmanager

from tests.surroundings import wait_for


@contextmanager
def serving(commands, printed: pathlib.Path, *arguments):
    """Serve the page of ``explore``. Yields its address, and ends it with Ctrl-C, whatever happens meanwhile.

    Args:
        commands: a ``CommandServer``.
        printed: a file for what it prints.
        arguments: those of the command, without ``--port``.
    """
    running = commands.start("fb-fairseq", "explore", *arguments, "--port", 0, printed=printed)
    try:
        wait_for(lambda: not running.is_alive() or running.lines() and running.lines()[-1].startswith("Open "))
        yield running.lines()[-1].split()[1]
    finally:
        if running.is_alive():
            running.send_signal(signal.SIGINT)
        status = running.wait()
    assert status == 0 and len(running.lines()) == 1, running.lines()
