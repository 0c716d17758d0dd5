"""Text files in; files and folders out that appear whole or not at all, and that only one run writes to."""

import errno
import os
import shutil
import socket
import tempfile
from contextlib import contextmanager
from typing import IO, Dict, Iterator

from fb_fairseq.errors import UserError, no_space

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


@contextmanager
def open_text(path: str) -> Iterator[IO[str]]:
    """Open a UTF-8 text file for reading.

    Raises:
        OSError: the file cannot be read.
        UserError: it is not UTF-8.
    """
    try:
        with open(path, encoding="utf-8") as file:
            yield file
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not UTF-8 text ({error.reason}); convert it, or give another file") from None


@contextmanager
def atomic_write(path: str) -> Iterator[str]:
    """Write a file atomically: yield a temporary name beside ``path``, and rename it to ``path`` at the end.

    Use::

        with atomic_write("results.txt") as temporary, open(temporary, "w") as file:
            file.write(results)

    Raises:
        OSError: the file cannot be written. What stood at ``path`` before is still there, the temporary file is gone.
    """
    temporary = f"{path}.tmp"
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException as error:
        if os.path.isfile(temporary):
            os.remove(temporary)
        if isinstance(error, OSError) and error.filename == temporary:
            error.filename = path  # the name that the user knows
        _name_full_disk(error, path)
        raise


@contextmanager
def atomic_folder(path: str) -> Iterator[str]:
    """Write the files of a folder all together: yield a temporary folder in ``path``, and move its files up at the end.

    ``path`` is created if it does not exist, and so are folders that the temporary one has. Other files stay.

    Raises:
        OSError: the folder cannot be written to.
    """
    os.makedirs(path, exist_ok=True)
    temporary = tempfile.mkdtemp(prefix=".incomplete-", dir=path)
    try:
        yield temporary
        for folder, _, names in os.walk(temporary):
            target = os.path.normpath(os.path.join(path, os.path.relpath(folder, temporary)))
            os.makedirs(target, exist_ok=True)
            for name in names:
                os.replace(os.path.join(folder, name), os.path.join(target, name))
    except Exception as error:
        _name_full_disk(error, path)
        raise
    finally:
        shutil.rmtree(temporary)


def _name_full_disk(error: BaseException, path: str) -> None:
    """Raise an error that a full disk has caused with the name that the user knows: most come without any.

    Raises:
        OSError: it is such an error.
    """
    number = no_space(error)
    if number:
        raise OSError(number, os.strerror(number), path) from None


_locks: Dict[str, IO[str]] = {}  # open files of the folders that this process has locked, by path


def lock_folder(option: str, path: str) -> None:
    """Lock a folder, created if missing, until this process ends, because two runs would overwrite each other's files.

    The lock is the operating system's, on a file ``.lock``: it goes with the process, however that ends. Where the file
    system has no locks, or on Windows, nothing is locked.

    Raises:
        OSError: the folder cannot be written to.
        UserError: the path is no folder, or another process has locked it.
    """
    check_output_folder(option, path)
    os.makedirs(path, exist_ok=True)
    name = os.path.join(os.path.realpath(path), ".lock")
    if fcntl is None or name in _locks:
        return
    file = open(name, "a+")
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.seek(0)
        owner = file.read().strip()
        file.close()
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise UserError(
                f"{option} {path}: another run is writing to this folder ({owner}); wait until it ends, or give "
                "another folder"
            ) from None
        return
    _locks[name] = file  # closing it would release the lock
    file.truncate(0)
    file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
    file.flush()


def check_output_file(option: str, path: str) -> None:
    """Check that a file can be written, before long work whose result it will hold.

    Raises:
        UserError: the path is a folder, or its folder is missing or read-only.
    """
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path):
        raise UserError(f"{option} {path}: is a folder; give the name of a file")
    if not os.path.isdir(folder):
        raise UserError(f"{option} {path}: its folder does not exist; create it, or give another path")
    if not os.access(folder, os.W_OK):
        raise UserError(f"{option} {path}: its folder cannot be written to; give another path")


def check_output_folder(option: str, path: str) -> None:
    """Check that files can be written to a folder, which may not exist yet.

    Raises:
        UserError: the path, or a part of it, is a file; or the folder is read-only.
    """
    existing = os.path.abspath(path)
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    if not os.path.isdir(existing):
        raise UserError(f"{option} {path}: {existing} is a file; give the name of a folder")
    if not os.access(existing, os.W_OK):
        raise UserError(f"{option} {path}: {existing} cannot be written to; give another folder")
