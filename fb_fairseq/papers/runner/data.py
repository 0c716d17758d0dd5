"""The step ``prepare``: data that appears only when it is complete, and that models were trained on stays."""

import glob
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fb_fairseq.checksums import checksum_of
from fb_fairseq.errors import UserError
from fb_fairseq.files import LOCK, atomic_write, lock_folder
from fb_fairseq.papers.runner.shell import Shell, read

Prepare = Callable[[Shell, str, str], None]


def prepare_data(shell: Shell, out: str, data: str, setting: str, source: str, prepare: Prepare) -> None:
    """Call ``prepare(shell, source, folder)``, which writes the data, unless this is done. It is done if the source,
    the setting and the data itself, in OUT, are as they were left last time. The setting is one line: whatever else the
    data depends on. The source may be empty."""
    shell.comment("prepare")
    shell.show("mkdir", "-p", data)
    unfinished = shell.do(_unfinished, shell, data, setting, source, otherwise=data)
    if not unfinished:
        return
    try:
        prepare(shell, source, unfinished)
        shell.do(_finish, out, data, setting, source)
    finally:
        shell.do(shutil.rmtree, unfinished, ignore_errors=True)


def _unfinished(shell: Shell, data: str, setting: str, source: str) -> str:
    """The folder to prepare the data in, empty and locked; an empty name if they are prepared."""
    if read(f"{data}.prepared").splitlines() == state_of(data, setting, source):
        shell.say("== prepare: done already")
        return ""
    shell.say("== prepare")
    folder = f"{data}.tmp"
    lock_folder("--out", folder)
    for name in set(os.listdir(folder)) - {LOCK}:  # a killed run has left it
        path = os.path.join(folder, name)
        shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
    return folder


def _finish(out: str, data: str, setting: str, source: str) -> None:
    """Put the prepared data in their place."""
    marker, unfinished = f"{data}.prepared", f"{data}.tmp"
    if differs(data, unfinished) and glob.glob(f"{glob.escape(out)}/*/*.pt"):
        old = (read(marker).splitlines() or [setting])[0]
        which = f" ({old})" if old != setting else ""
        raise UserError(
            f"{out}: holds models that were trained on other data{which}; choose another --out, or delete this one"
        )
    with suppress(FileNotFoundError):
        os.remove(marker)  # first, so that incomplete data never counts as done
    shutil.rmtree(data, ignore_errors=True)
    os.rename(unfinished, data)
    with suppress(FileNotFoundError):  # the second time in this process
        os.remove(os.path.join(data, LOCK))
    with atomic_write(marker) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write("\n".join(state_of(data, setting, source)) + "\n")


def state_of(data: str, setting: str, source: str) -> list[str]:
    """What the data were prepared from, and the data itself, in lines."""
    return [setting, *listed(source, checksum), *listed(data, os.path.getsize)]


def checksum(path: str) -> str:
    """The CRC-32 and the size of a file."""
    return f"{checksum_of(path)} {os.path.getsize(path)}"


def listed(path: str, describe: Callable[[str], Any]) -> list[str]:
    """A line for a file, or for each file in a folder: its name, and what describes it; none if there is nothing."""
    names = sorted(os.listdir(path)) if os.path.isdir(path) else []
    files = [path] if os.path.isfile(path) else [os.path.join(path, name) for name in names]
    return [f"{os.path.basename(file)!r} {describe(file)}" for file in files if os.path.isfile(file)]


def differs(old: str, new: str) -> bool:
    """Whether what models are trained on, the training split or a dictionary, is not the same in two folders."""
    for pattern in ("train*.bin", "dict*.txt"):
        for path in glob.glob(os.path.join(glob.escape(new), pattern)):
            other = os.path.join(old, os.path.basename(path))
            if os.path.exists(other) and checksum(other) != checksum(path):
                return True
    return False
