"""Folders of output: those whose files are written aside and moved into place at the end, and those of trainings, which
one run at a time locks.

A command replaces only what it has written itself: it recognises its folders by a hidden file (``check_own_folder``).
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from fb_fairseq.errors import UserError
from fb_fairseq.files import atomic_write

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

LOCK = ".lock"  # a lock file's name; what it contains does not matter
MARK = ".fb_fairseq-{}"  # the name of the file by which a command marks a folder
_locks: dict[str, int] = {}  # descriptors of the locks that this process has, by path


@contextmanager
def own_folder(option: str, path: str, command: str, overwrite: bool = False, *, made_from: str = "") -> Iterator[str]:
    """Write the files of a folder all together: yield a temporary folder in ``path``, and move its files up at the end.

    ``path`` is created if it does not exist, and so are folders that the temporary one has. Other files stay. For the
    arguments, and for what is refused, see ``check_own_folder``.
    """
    check_own_folder(option, path, command, overwrite, made_from=made_from)
    os.makedirs(path, exist_ok=True)
    temporary = tempfile.mkdtemp(prefix=".incomplete-", dir=path)
    try:
        yield temporary
        found = list(os.walk(temporary))
        files = [os.path.join(folder, name) for folder, _, names in found for name in names]
        new = {os.path.relpath(file, temporary): file for file in files}
        check_own_folder(option, path, command, overwrite, made_from=made_from, names=new)
        places = {file: os.path.join(path, name) for name, file in new.items()}
        for place in places.values():
            if os.path.isdir(place):
                raise UserError(
                    f"{option} {place}: is a folder, where a file has to be; remove it, or give another folder"
                )
        for folder, *_ in found:
            check_output_folder(option, os.path.join(path, os.path.relpath(folder, temporary)))
        for file, place in places.items():
            os.makedirs(os.path.dirname(place), exist_ok=True)
            os.replace(file, place)
        with atomic_write(os.path.join(path, MARK.format(command))) as mark, open(mark, "w", encoding="utf-8") as file:
            lines = [made_from or command, *(f"{name} {_state(os.path.join(path, name))}" for name in sorted(new))]
            file.write("\n".join(lines) + "\n")
    finally:
        shutil.rmtree(temporary)


def lock_folder(option: str, path: str) -> None:
    """Lock a folder, created if missing, until this process ends, because two runs would overwrite each other's files.

    The lock is the operating system's, on a file ``.lock``: it goes with the process, however that ends. Where the file
    system has no locks, or on Windows, nothing is locked.

    Args:
        option: that names the folder, for messages.
        path: the folder.
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
    """Lock the folder of a training (``lock_folder``), and mark it as the command's. Other files in it stay.

    Args:
        option: that names the folder, for messages.
        path: the folder.
        command: its name in the mark.
        known: whether the folder's checkpoint identifies it (earlier versions left no mark); otherwise it must be new,
            empty or marked.
    """
    mark = os.path.join(path, MARK.format(command))
    if not known:
        check_marked_folder(option, path, mark)
    lock_folder(option, path)
    if not os.path.isfile(mark):
        with atomic_write(mark) as temporary, open(temporary, "w", encoding="utf-8") as file:
            file.write(f"{command}\n")


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
    *,
    made_from: str = "",
    names: Collection[str] = (),
) -> None:
    """Check a folder that a command writes files to: it is new or empty, but for hidden files; or it has this command's
    mark, and nothing but files that it has written, that are unchanged since, and that it writes again.

    Args:
        option: that names the folder, for messages.
        path: the folder.
        command: its name in the mark.
        overwrite: whether files may be there that the command has not written, and are replaced.
        made_from: one line that fully determines the files' content, for commands whose output depends on nothing
            else; the mark must have the same line.
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
            place = os.path.join(path, own)
            is_changed = f"{own} {_state(place)}" not in written
            is_left_over = names and own not in names  # of what is written now
            if (is_changed or is_left_over) and (os.path.islink(place) or not os.path.isdir(place)):
                raise UserError(f"{option} {place}: this command has not written it, or it was changed since; {remedy}")


def _visible(folder: str) -> list[str]:
    """The names in a folder, without those of hidden files; none if it does not exist."""
    return [name for name in os.listdir(folder) if not name.startswith(".")] if os.path.isdir(folder) else []


def _state(path: str) -> str:
    """A file's size, and when it was written; a copy that keeps the time counts as unchanged."""
    status = os.lstat(path)
    return f"{status.st_size} {status.st_mtime_ns}"
