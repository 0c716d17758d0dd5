"""Text files in; files out that appear whole or not at all.

A command replaces only what it has written itself: it recognises its files by its own name inside them
(``is_written_by``). Nothing is deleted that the call itself has not written.
"""

import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

from fb_fairseq.errors import UserError

WRITER = "written_by"  # the key under which a file names the command that wrote it
EDGE = 4096  # bytes of a file's beginning and end that are searched for it
# The key, and the bytes between it and the name: in pickles of ``torch.save``; or in JSON, PNG, GIF, SVG and PDF.
SIGN = b"(?s)" + WRITER.encode() + rb"(?:q.X....|[^a-z]{1,5})"


@contextmanager
def open_text(path: str) -> Iterator[IO[str]]:
    """Open a UTF-8 text file for reading."""
    try:
        with open(path, encoding="utf-8") as file:
            yield file
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not UTF-8 text ({error.reason}); convert it, or give another file") from None


@contextmanager
def atomic_write(path: str) -> Iterator[str]:
    """Write a file atomically: yield the name of a new file beside ``path``, and rename it to ``path`` at the end.

    Its name is a random one. If writing fails, it is removed, and what stood at ``path`` is still there.

    Use::

        with atomic_write("results.txt") as temporary, open(temporary, "w") as file:
            file.write(results)
    """
    _check_file(path, path)
    temporary = os.path.join(os.path.dirname(path), f".incomplete-{secrets.token_hex(8)}")
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException as error:
        if os.path.lexists(temporary):
            os.remove(temporary)
        if isinstance(error, OSError) and error.filename == temporary:
            error.filename, error.filename2 = path, None  # the name that the user knows
        raise


def write_json(path: str, command: str, content: Mapping[str, Any]) -> None:
    """Write a line of JSON to a file, with the name of the command that writes it."""
    with atomic_write(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(json.dumps({WRITER: command, **content}) + "\n")


def is_written_by(command: str, path: str) -> bool:
    """Whether a file names this command as its writer. ``command``: as there, ``rl-evaluate``."""
    with open(path, "rb") as file:
        edges = file.read(EDGE)
        file.seek(max(0, os.path.getsize(path) - EDGE))
        edges += file.read(EDGE)
    return re.search(SIGN + command.encode() + rb"(?!-)", edges) is not None


def check_output_file(option: str, path: str, command: str, overwrite: bool = False) -> None:
    """Check that a file can be written, before long work whose result it will hold. A file that is there already may be
    replaced if it is empty, or ``is_written_by`` the command. ``overwrite``: any file may be replaced.
    """
    _check_file(path, f"{option} {path}")
    folder, name = os.path.split(path)
    if not name:
        raise UserError(f"{option} {path}: has no name of a file; give one")
    folder = os.path.abspath(folder)
    if not os.path.isdir(folder):
        raise UserError(f"{option} {path}: its folder does not exist; create it, or give another path")
    if not os.access(folder, os.W_OK):
        raise UserError(f"{option} {path}: its folder cannot be written to; give another path")
    if os.path.isfile(path) and os.path.getsize(path) and not overwrite and not is_written_by(command, path):
        raise UserError(f"{option} {path}: this command has not written it; give another path, or --overwrite")


def _check_file(path: str, shown: str) -> None:
    """Check that nothing but a file is at ``path``. ``shown``: the path as the message shows it."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise UserError(f"{shown}: is no file, but a folder, a device or a pipe; give the name of a file")
