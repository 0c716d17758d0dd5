"""The step ``prepare``: data that appears only when it is complete, and that models were trained on stays."""

import glob
import os
import platform
import shutil
from typing import Callable, List

from fb_fairseq.checksums import checksum_of
from fb_fairseq.errors import UserError
from fb_fairseq.files import atomic_write
from fb_fairseq.papers.runner.shell import Shell

OWNER = ".owner"  # in a folder that is being written: the process and its machine
Prepare = Callable[[Shell, str, str], None]


def prepare_data(shell: Shell, out: str, data: str, setting: str, source: str, prepare: Prepare) -> None:
    """Call ``prepare(shell, source, folder)``, which writes the data, unless this is done.

    It is done if the source, the setting and the data itself are as they were left last time.

    Args:
        shell: of the recipe.
        out: the recipe's folder.
        data: the folder to write, in ``out``.
        setting: one line: whatever else the data depends on.
        source: the user's file or folder; it may be empty.

    Raises:
        UserError: another run is writing it, or models were trained on other data.
    """
    shell.comment("prepare")
    if shell.printing:
        shell.run("mkdir", "-p", data)
        prepare(shell, source, data)
        return
    marker, unfinished = f"{data}.prepared", f"{data}.tmp"
    wanted = [setting, *checksums(source)]
    if os.path.exists(marker) and _lines(marker) == [*wanted, *sizes(data)]:
        shell.say("== prepare: done already")
        return
    shell.say("== prepare")
    claim(unfinished)
    try:
        prepare(shell, source, unfinished)
        os.remove(os.path.join(unfinished, OWNER))
        if differs(data, unfinished) and glob.glob(f"{glob.escape(out)}/*/*.pt"):
            old = (_lines(marker) or [setting])[0] if os.path.exists(marker) else setting
            which = f" ({old})" if old != setting else ""
            raise UserError(
                f"{out}: holds models that were trained on other data{which}; choose another --out, or delete this one"
            )
        if os.path.exists(marker):
            os.remove(marker)  # first, so that incomplete data never counts as done
        shutil.rmtree(data, ignore_errors=True)
        os.rename(unfinished, data)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    with atomic_write(marker) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write("\n".join([*wanted, *sizes(data)]) + "\n")


def _lines(path: str) -> List[str]:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read().splitlines()


def claim(folder: str) -> None:
    """Make a folder, in place of one that a killed run has left.

    Raises:
        UserError: another run is writing it.
    """
    owner, process, machine = os.path.join(folder, OWNER), "", ""
    if os.path.exists(owner):
        process, _, machine = "".join(_lines(owner)[:1]).partition(" ")
    if machine == platform.node() and not _is_running(process):
        shutil.rmtree(folder)
    try:
        os.mkdir(folder)
    except FileExistsError:
        who = f"process {process} on {machine}" if machine else "another run"
        raise UserError(
            f"{folder}: {who} is writing it; wait for that run or, if it was killed, delete this folder"
        ) from None
    with open(owner, "w") as file:
        file.write(f"{os.getpid()} {platform.node()}\n")


def _is_running(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ValueError, OverflowError, ProcessLookupError):
        return False
    except PermissionError:
        pass
    return True


def checksum(path: str) -> str:
    """The CRC-32 and the size of a file."""
    return f"{checksum_of(path)} {os.path.getsize(path)}"


def checksums(source: str) -> List[str]:
    """The checksum of a file, or of all files in a folder; empty if there is nothing."""
    if os.path.isfile(source):
        return [f"{os.path.basename(source)} {checksum(source)}"]
    if not os.path.isdir(source):
        return []
    files = [name for name in sorted(os.listdir(source)) if os.path.isfile(os.path.join(source, name))]
    return [f"{name!r} {checksum(os.path.join(source, name))}" for name in files]


def sizes(folder: str) -> List[str]:
    """The names and sizes of a folder's files; empty if it does not exist."""
    if not os.path.isdir(folder):
        return []
    return [f"{name!r} {os.path.getsize(os.path.join(folder, name))}" for name in sorted(os.listdir(folder))]


def differs(old: str, new: str) -> bool:
    """Whether what models are trained on, the training split or a dictionary, is not the same in two folders."""
    for pattern in ("train*.bin", "dict*.txt"):
        for path in glob.glob(os.path.join(glob.escape(new), pattern)):
            other = os.path.join(old, os.path.basename(path))
            if os.path.exists(other) and checksum(other) != checksum(path):
                return True
    return False
