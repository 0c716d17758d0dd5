"""Errors that the user can fix, and how any error is told in one line."""

import difflib
import errno
import os
import re
import sys
from collections.abc import Iterable

from fb_fairseq.packages import missing_package

STATUS = 2  # the exit status after a user's mistake, as argparse's
DEBUG_VARIABLE = "FB_FAIRSEQ_DEBUG"  # set it to 1 to see tracebacks

# PyTorch's messages about tensors that do not fit into the CPU's memory.
TOO_LARGE = re.compile("tried to allocate|can't allocate memory|Storage size calculation overflowed")
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # errors in writing, which come without the file's name
NAMES_AN_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


class UserError(ValueError):
    """Bad input. The message is one line that names the option or file, and the remedy."""


def flag(name: str) -> str:
    """The command-line spelling of an option: ``decoder_layers`` to ``--decoder-layers``."""
    return f"--{name.replace('_', '-')}"


def choose(name: str, names: Iterable[str]) -> str:
    """The remedy for a name that is none of these: the one that is meant, or all of them."""
    names = list(names)
    close = difflib.get_close_matches(name, names, 1)
    return f"did you mean {close[0]}?" if close else f"choose from {', '.join(names)}"


def debugging() -> bool:
    """Whether tracebacks are asked for."""
    return os.environ.get(DEBUG_VARIABLE, "") not in ("", "0")


def single_line(text: str) -> str:
    """The text with line breaks (of file names, say) written as escapes."""
    return text.replace("\r", "\\r").replace("\n", "\\n")


def names_an_option(error: BaseException) -> bool:
    """Whether an error of fairseq's is one line for users."""
    text = str(error)
    is_for_users = type(error) in (AssertionError, Exception, ValueError) and NAMES_AN_OPTION.search(text)
    return bool(is_for_users) and "\n" not in text


def explain(error: BaseException) -> str | None:
    """One line about an error that input, options or the machine have caused; None if it is a fault in the program."""
    if isinstance(error, UserError):
        return single_line(str(error))
    if isinstance(error, OSError):
        path = error.filename2 or error.filename
        if isinstance(path, (str, bytes)):
            return single_line(f"{os.fsdecode(path)}: {error.strerror}")
        return error.strerror if error.errno in NO_SPACE else None
    if isinstance(error, UnicodeDecodeError):
        return f"the input is not UTF-8 text ({error.reason}); convert it"
    if isinstance(error, ImportError):
        return missing_package(error)
    on_gpu = type(error).__name__ == "OutOfMemoryError"
    on_cpu = TOO_LARGE.search(str(error))
    if isinstance(error, MemoryError) or isinstance(error, RuntimeError) and (on_gpu or on_cpu):
        return "out of memory; use smaller sizes"
    return None


def fail(name: str, error: Exception) -> int:
    """Say in one line why a command of ``fb-fairseq`` has failed. Returns its exit status.

    Args:
        name: of the command; or an option in its place.
        error: what has happened.

    Raises:
        Exception: ``error`` itself, if ``explain`` does not know it, or with ``FB_FAIRSEQ_DEBUG=1``.
    """
    line = explain(error)
    if line is None or debugging():
        raise error
    print(f"fb-fairseq {name}: error: {line}", file=sys.stderr)
    return STATUS
