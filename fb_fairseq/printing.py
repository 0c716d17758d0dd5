"""The output of commands: characters that the terminal lacks, readers that are gone, fairseq's log, and progress."""

import io
import logging
import os
import sys
from collections.abc import Iterable, Iterator
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


def progress(items: Iterable, name: str) -> Iterable:
    """Iterate over items, with a progress bar where standard error is a terminal.

    Args:
        items: whatever is iterated over.
        name: what stands before the bar.
    """
    from tqdm import tqdm

    return tqdm(items, desc=name, disable=None, leave=False)
