"""The output of commands: characters that the terminal lacks, readers that are gone, and fairseq's log in it."""

import io
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

OUTPUT_CLOSED_STATUS = 141  # as shells report a program whose output nobody reads any more (``| head``)


def replace_in_output() -> None:
    """Print "?" for characters that the terminal does not have. (Python does the like in stderr by itself.)"""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


@contextmanager
def no_log() -> Iterator[None]:
    """Print nothing but the command's own output: fairseq's log of INFO is off inside."""
    before = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        yield
    finally:
        logging.disable(before)


def forget_output() -> None:
    """Throw away what is still to be printed, after nobody reads it any more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
