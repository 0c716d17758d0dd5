"""The command lines of ``python -m fb_fairseq``: help texts, and mistakes reported in one line."""

import argparse
import sys
from contextlib import contextmanager
from typing import Iterator, Optional

from fb_fairseq.errors import STATUS, debugging, explain, single_line

INTERRUPTED_STATUS = 130  # as shells report Ctrl-C


class CommandParser(argparse.ArgumentParser):
    """Parses the options of ``python -m fb_fairseq <command>``; without a command, those of a script.

    The help text shows the description as it is. A mistake on the command line prints one line, without the usage.
    """

    def __init__(self, command: Optional[str] = None, **kwargs):
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        if command is not None:
            kwargs["prog"] = f"python -m fb_fairseq {command}"
        super().__init__(**kwargs)

    def error(self, message: str) -> None:
        """Print the message and exit with status 2."""
        self.exit(STATUS, f"{self.prog}: error: {single_line(message)}\n")

    @contextmanager
    def one_line_errors(self) -> Iterator[None]:
        """Report errors that ``explain`` knows in one line; with ``FB_FAIRSEQ_DEBUG=1`` with their traceback."""
        try:
            yield
        except KeyboardInterrupt:
            sys.stderr.write(f"{self.prog}: interrupted\n")
            sys.exit(INTERRUPTED_STATUS)
        except Exception as error:
            line = explain(error)
            if line is None or debugging():
                raise
            self.error(line)
