"""The step ``prepare``: data that appears only when it is complete, and that models were trained on stays."""

import glob
import os
import shutil
from contextlib import suppress
from typing import Callable, List

from fb_fairseq.checksums import checksum_of
from fb_fairseq.errors import UserError
from fb_fairseq.files import LOCK, atomic_write, lock_folder
from fb_fairseq.papers.runner.shell import Shell

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
    lock_folder("--out", unfinished)
    for name in set(os.listdir(unfinished)) - {LOCK}:  # a killed run has left it
        path = os.path.join(unfinished, name)
        shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
    try:
        prepare(shell, source, unfinished)
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
        with suppress(FileNotFoundError):  # the second time in this process
            os.remove(os.path.join(data, LOCK))
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    with atomic_write(marker) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write("\n".join([*wanted, *sizes(data)]) + "\n")


def _lines(path: str) -> List[str]:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read().splitlines()


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
