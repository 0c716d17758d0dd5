"""Text files in; files and folders out that appear whole or not at all, and that only one run writes to."""

import errno
import glob
import os
import re
import secrets
import shutil
import socket
import stat
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from fb_fairseq.errors import UserError, no_space

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

# Not to follow symbolic links, nor to wait at pipes. Windows has no such flags.
CAREFULLY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
PIPES = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")  # what a shell passes to a command
# How compressed files begin, and what unpacks them.
COMPRESSED = {
    rb"\x1f\x8b\x08": "gunzip",
    rb"PK\x03\x04": "unzip",
    rb"BZh[1-9]1AY&SY": "bunzip2",
    rb"\xfd7zXZ\x00": "unxz",
    rb"\x28\xb5\x2f\xfd": "unzstd",
}
LOCK, LOCK_TEXT = ".lock", "process "  # a lock file's name, and how it begins
BEGINNING = 512  # bytes of a file that tell which command has written it
_locks: dict[str, IO[str]] = {}  # open files of the folders that this process has locked, by path


def check_regular(path: str, or_pipe: bool = False) -> None:
    """Check that a path, if it exists, is no device and no pipe, which may never end. ``or_pipe``: whether standard
    input and the pipes of a shell will do: ``<(command)``."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):  # to open it says why
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or or_pipe and str(path).startswith(PIPES)):
        raise UserError(f"{path}: is a device or a pipe; give a file")


def check_unpacked(path: str, beginning: bytes) -> None:
    """Check that a text with this beginning is not compressed."""
    for pattern, program in COMPRESSED.items():
        if re.match(pattern, beginning):
            raise UserError(f"{path}: is compressed; unpack it with {program}, and give the text")


@contextmanager
def open_text(path: str) -> Iterator[IO[str]]:
    """Open a UTF-8 text file for reading."""
    check_regular(path, or_pipe=True)
    try:
        with open(path, encoding="utf-8") as file:
            yield file
    except UnicodeDecodeError as error:
        check_unpacked(path, error.object)
        raise UserError(f"{path}: is not UTF-8 text ({error.reason}); convert it, or give another file") from None


@contextmanager
def atomic_write(path: str) -> Iterator[str]:
    """Write a file atomically: yield the name of a new file beside ``path``, and rename it to ``path`` at the end.

    Its name is a random one. Files that a killed process has left of an earlier attempt are removed. If writing fails,
    what stood at ``path`` is still there.

    Use::

        with atomic_write("results.txt") as temporary, open(temporary, "w") as file:
            file.write(results)"""
    check_regular(path)
    folder, name = os.path.split(path)
    start = os.path.join(folder, f".incomplete-{zlib.crc32(os.fsencode(name)):08x}-")
    descriptor, temporary = None, ""
    try:
        _remove_abandoned(start)
        descriptor, temporary = _create(start)
        yield temporary
        if fcntl is None:  # Windows, which renames no open files
            os.close(descriptor)
            descriptor = None
        os.replace(temporary, path)
    except BaseException as error:
        if os.path.isfile(temporary):
            os.remove(temporary)
        if isinstance(error, OSError) and str(error.filename).startswith(start):
            error.filename, error.filename2 = path, None  # the name that the user knows
        _name_full_disk(error, path)
        raise
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _create(start: str) -> tuple[int, str]:
    """Create and lock a file whose name begins in this way: its descriptor, which holds the lock, and its name."""
    while True:
        path = start + secrets.token_hex(8)
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | CAREFULLY, 0o666)
        _lock(descriptor)
        if os.path.exists(path):  # not taken for an abandoned one before it was locked
            return descriptor, path
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Lock an open file. Returns False if another process has locked it, or files cannot be locked here."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except (AttributeError, OSError):
        return False


def _remove_abandoned(start: str) -> None:
    """Remove the files whose names begin in this way and that no process has locked."""
    for path in glob.glob(f"{glob.escape(start)}*"):
        try:
            descriptor = os.open(path, os.O_RDWR | CAREFULLY)
        except OSError:
            continue
        if _lock(descriptor) and stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.remove(path)
        os.close(descriptor)


@contextmanager
def atomic_folder(path: str) -> Iterator[str]:
    """Write the files of a folder all together: yield a temporary folder in ``path``, and move its files up at the end.

    ``path`` is created if it does not exist, and so are folders that the temporary one has. Other files stay."""
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
    """Raise an error that a full disk has caused with the name that the user knows: most come without any."""
    number = no_space(error)
    if number:
        raise OSError(number, os.strerror(number), path) from None


def lock_folder(option: str, path: str) -> None:
    """Lock a folder, created if missing, until this process ends, because two runs would overwrite each other's files.

    The lock is the operating system's, on a file ``.lock``: it goes with the process, however that ends. Where the file
    system has no locks, or on Windows, nothing is locked. A file of this name that is no lock is left as it is."""
    check_output_folder(option, path)
    os.makedirs(path, exist_ok=True)
    name = os.path.join(os.path.realpath(path), LOCK)
    if fcntl is None or name in _locks:
        return
    file = _open_lock(option, name)
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
    file.seek(0)
    file.truncate()
    file.write(f"{LOCK_TEXT}{os.getpid()} on {socket.gethostname()}\n")
    file.flush()


def _open_lock(option: str, path: str) -> IO[str]:
    """Open a lock file, created if missing."""
    other = UserError(f"{option}: {path} is not a lock file; remove it, or give another folder")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | CAREFULLY, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR):
            raise other from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise other
    file = open(descriptor, "r+", errors="replace")
    if file.read(len(LOCK_TEXT)) not in ("", LOCK_TEXT):
        file.close()
        raise other
    return file


def check_output_file(option: str, path: str, *signs: bytes, overwrite: bool = False) -> None:
    """Check that a file can be written, before long work whose result it will hold. ``signs``: a file that is there
    already may be replaced if it has one of these near its beginning. ``overwrite``: any file may be replaced."""
    try:
        check_regular(path)
    except UserError as error:
        raise UserError(f"{option} {error}") from None
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path):
        raise UserError(f"{option} {path}: is a folder; give the name of a file")
    if not os.path.isdir(folder):
        raise UserError(f"{option} {path}: its folder does not exist; create it, or give another path")
    if not os.access(folder, os.W_OK):
        raise UserError(f"{option} {path}: its folder cannot be written to; give another path")
    if os.path.isfile(path) and not overwrite:
        with open(path, "rb") as file:
            beginning = file.read(BEGINNING)
        if beginning and not any(sign in beginning for sign in signs):
            raise UserError(f"{option} {path}: this command has not written it; give another path, or --overwrite")


def check_output_folder(option: str, path: str) -> None:
    """Check that files can be written to a folder, which may not exist yet."""
    existing = os.path.abspath(path)
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    if not os.path.isdir(existing):
        raise UserError(f"{option} {path}: {existing} is a file; give the name of a folder")
    if not os.access(existing, os.W_OK):
        raise UserError(f"{option} {path}: {existing} cannot be written to; give another folder")


def check_own_folder(option: str, path: str, mark: str, more: str = "") -> None:
    """Check an output folder whose files are a command's own: it is new or empty, or has the file that marks it.

    Hidden files do not count.

    ``mark``: the file's name. ``more``: the end of the error's message."""
    check_output_folder(option, path)
    names = os.listdir(path) if os.path.isdir(path) else []
    if mark not in names and any(not name.startswith(".") for name in names):
        raise UserError(f"{option} {path}: has files that this command has not written; give an empty folder{more}")
