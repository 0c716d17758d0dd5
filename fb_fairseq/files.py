"""Text files in; files and folders out that appear whole or not at all, and that only one run writes to.

They replace nothing but what the same command has written: it marks a file by its name in it (``is_written_by``), and a
folder by a hidden file (``check_own_folder``). Nothing is deleted that the call itself has not written.
"""

import errno
import json
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

from fb_fairseq.errors import UserError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

LOCK = ".lock"  # a lock file's name; what it contains does not matter
MARK = ".fb_fairseq-{}"  # the name of the file by which a command marks a folder
WRITER = "written_by"  # in a file that a command writes, near its beginning or end, before the command's name
EDGE = 4096  # bytes of a file's beginning and end in which it may stand
# After it: what is between two texts in the pickles of ``torch.save``; or in JSON, PNG, GIF, SVG and PDF.
SIGN = rb"(?s)written_by(?:q.X....|[^a-z]{1,5})"
_locks: dict[str, int] = {}  # descriptors of the locks that this process has, by path


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
    if os.path.exists(path) and not os.path.isfile(path):
        raise UserError(f"{path}: is no file, but a folder, a device or a pipe; give the name of a file")
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


@contextmanager
def own_folder(option: str, path: str, command: str, overwrite: bool = False, made_from: str = "") -> Iterator[str]:
    """Write the files of a folder all together: yield a temporary folder in ``path``, and move its files up at the end.

    ``path`` is created if it does not exist, and so are folders that the temporary one has. Other files stay. See
    ``check_own_folder`` for the arguments, and for what is refused.
    """
    check_own_folder(option, path, command, overwrite, made_from)
    os.makedirs(path, exist_ok=True)
    temporary = tempfile.mkdtemp(prefix=".incomplete-", dir=path)
    try:
        yield temporary
        files = [os.path.join(folder, name) for folder, _, names in os.walk(temporary) for name in names]
        new = {os.path.relpath(file, temporary): file for file in files}
        check_own_folder(option, path, command, overwrite, made_from, names=new)
        for name, file in new.items():
            os.makedirs(os.path.dirname(os.path.join(path, name)), exist_ok=True)
            os.replace(file, os.path.join(path, name))
        with atomic_write(os.path.join(path, MARK.format(command))) as mark, open(mark, "w", encoding="utf-8") as file:
            lines = [made_from or command, *(f"{name} {_state(os.path.join(path, name))}" for name in sorted(new))]
            file.write("\n".join(lines) + "\n")
    finally:
        shutil.rmtree(temporary)


def lock_folder(option: str, path: str) -> None:
    """Lock a folder, created if missing, until this process ends, because two runs would overwrite each other's files.

    The lock is the operating system's, on a file ``.lock``: it goes with the process, however that ends. Where the file
    system has no locks, or on Windows, nothing is locked.
    """
    check_output_folder(option, path)
    os.makedirs(path, exist_ok=True)
    name = os.path.join(os.path.realpath(path), LOCK)
    if fcntl is None or name in _locks:
        return
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise UserError(
                f"{option} {path}: another run is writing to this folder; wait until it ends, or give another folder"
            ) from None
        return
    _locks[name] = descriptor  # closing it would release the lock


def start_run(option: str, path: str, command: str, known: bool) -> None:
    """Lock the folder of a training (``lock_folder``), and mark it as the command's. It is new or empty, or has the
    mark, or is ``known`` by its checkpoint: earlier versions left no mark. Other files in it stay.
    """
    mark = os.path.join(path, MARK.format(command))
    if not known:
        check_marked_folder(option, path, mark)
    lock_folder(option, path)
    if not os.path.isfile(mark):
        with atomic_write(mark) as temporary, open(temporary, "w", encoding="utf-8") as file:
            file.write(f"{command}\n")


def is_written_by(command: str, path: str) -> bool:
    """Whether a file names this command as its writer. ``command``: as there, ``rl-evaluate``."""
    with open(path, "rb") as file:
        edges = file.read(EDGE)
        file.seek(max(0, os.path.getsize(path) - EDGE))
        edges += file.read(EDGE)
    return re.search(SIGN + command.encode(), edges) is not None


def check_output_file(option: str, path: str, command: str, overwrite: bool = False) -> None:
    """Check that a file can be written, before long work whose result it will hold. A file that is there already may be
    replaced if it is empty, or ``is_written_by`` the command. ``overwrite``: any file may be replaced.
    """
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.exists(path) and not os.path.isfile(path):
        raise UserError(f"{option} {path}: is no file, but a folder, a device or a pipe; give the name of a file")
    if not os.path.isdir(folder):
        raise UserError(f"{option} {path}: its folder does not exist; create it, or give another path")
    if not os.access(folder, os.W_OK):
        raise UserError(f"{option} {path}: its folder cannot be written to; give another path")
    if os.path.isfile(path) and os.path.getsize(path) and not overwrite and not is_written_by(command, path):
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


def check_marked_folder(option: str, path: str, mark: str, remedy: str = "give an empty folder") -> None:
    """Check that a folder is new or empty, but for hidden files, or has the file that marks it.

    Args:
        option: that names the folder, for messages.
        path: the folder.
        mark: the path of the file.
        remedy: what to do otherwise.
    """
    check_output_folder(option, path)
    if _visible(path) and not os.path.isfile(mark):
        raise UserError(f"{option} {path}: has files that this command has not written; {remedy}")


def check_own_folder(
    option: str,
    path: str,
    command: str,
    overwrite: bool = False,
    made_from: str = "",
    names: Collection[str] = (),
) -> None:
    """Check a folder that a command writes files to: it is new or empty, but for hidden files; or it has this command's
    mark, and nothing but what the command writes again.

    Args:
        command: its name in the mark.
        overwrite: whether files may be there that the command has not written, and are replaced.
        made_from: what determines the content of the files, in one line, for commands that nothing else determines it;
            the mark must have the same.
        names: of all files, relative to the folder. Before they are known, only the rest is checked.
    """
    check_output_folder(option, path)
    if overwrite or not _visible(path):
        return
    mark = os.path.join(path, MARK.format(command))
    remedy = "give a new or empty folder, or --overwrite"
    check_marked_folder(option, path, mark, remedy)
    with open(mark, encoding="utf-8", errors="replace") as file:
        of, *written = file.read().splitlines() or [""]
    if of != (made_from or command):
        raise UserError(f"{option} {path}: has what this command has made from other data or options; {remedy}")
    for folder in {"", *map(os.path.dirname, names)}:
        for name in _visible(os.path.join(path, folder)):
            own = os.path.join(folder, name)
            file = os.path.join(path, folder, name)
            is_foreign = names and own not in names or f"{own} {_state(file)}" not in written
            if is_foreign and (os.path.islink(file) or not os.path.isdir(file)):
                raise UserError(f"{option} {file}: this command has not written it, or it was changed since; {remedy}")


def _visible(folder: str) -> list[str]:
    """The names in a folder, without those of hidden files; none if it does not exist."""
    return [name for name in os.listdir(folder) if not name.startswith(".")] if os.path.isdir(folder) else []


def _state(path: str) -> str:
    """A file's size, and when it was written: copies that keep the time are as unchanged as the file was."""
    status = os.lstat(path)
    return f"{status.st_size} {status.st_mtime_ns}"
