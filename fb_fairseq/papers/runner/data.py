"""The step ``prepare``: data that appears only when it is complete, and that models were trained on stays; checking,
unpacking and binarising text."""

import glob
import gzip
import hashlib
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from fb_fairseq.checksums import checksum_of
from fb_fairseq.errors import UserError
from fb_fairseq.files import LOCK, atomic_write, lock_folder
from fb_fairseq.papers.runner.settings import Options, words
from fb_fairseq.papers.runner.shell import Shell, read

CHUNK = 1 << 20  # bytes
DAMAGED = (EOFError, KeyError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, NotImplementedError, RuntimeError)


def prepare_data(shell: Shell, out: str, data: str, setting: str, source: str, prepare: Callable) -> None:
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
        raise UserError(f"{out}: holds models of other data{which}; choose another --out, or delete this one")
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


def require(shell: Shell, source: str, wanted: str) -> None:
    """Stop unless DATA is a file."""
    if not shell.do(os.path.isfile, source, otherwise=True):
        raise UserError(f"DATA {source}: no such file; give {wanted}")


def first_file(shell: Shell, folder: str, *names: str, wanted: str, what: str = "DATA") -> str:
    """The first of a folder's files that exists and is not empty, which has to be text in UTF-8; with ``--print``, the
    first name if there is none."""
    paths = [os.path.join(folder, name) for name in names]
    found = [path for path in paths if os.path.isfile(path) and os.path.getsize(path)]
    found = found or shell.do(list, otherwise=paths)
    if not found:
        listed = " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
        raise UserError(f"{what} {folder}: no {listed} in this folder; give {wanted}")
    shell.do(check_text, found[0])
    return found[0]


def unpack(shell: Shell, source: str, target: str, member: str = "") -> None:
    """Copy a plain file, unpack a .gz, or extract a member (or the only file) from a .zip."""
    if source.endswith(".gz"):
        shell.show("gzip", "-dc", source, write=target)
    elif source.endswith(".zip"):
        shell.show("unzip", "-p", source, member, write=target)
    else:
        shell.show("cp", source, target)
    shell.do(_unpack, source, target, member)


def _unpack(source: str, target: str, member: str) -> None:
    zipped = source.endswith(".zip")
    try:
        with atomic_write(target) as temporary, open(temporary, "wb") as out:
            if zipped:
                with zipfile.ZipFile(source) as archive:
                    names = archive.namelist()
                    with archive.open(names[0] if len(names) == 1 else member) as file:
                        shutil.copyfileobj(file, out, CHUNK)
            else:
                with (gzip.open if source.endswith(".gz") else open)(source, "rb") as file:
                    shutil.copyfileobj(file, out, CHUNK)
    except DAMAGED:
        which = f" with {member or 'one file'}" if zipped else ""
        raise UserError(f"{source}: cannot be unpacked; use an intact copy{which}") from None


def check_text(path: str) -> None:
    """Stop unless a file, plain or .gz, is text in UTF-8."""
    try:
        with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as file:
            while file.read(CHUNK):
                pass
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; give another") from None
    except (UnicodeDecodeError, EOFError, OSError, zlib.error):
        raise UserError(f"{path}: not UTF-8 text, or damaged; convert it (iconv) or use an intact copy") from None


def check_file(path: str, md5: str, name: str, size: int | None = None) -> None:
    """Stop unless a file is the published one."""
    digest = hashlib.md5()
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(CHUNK), b""):
            digest.update(chunk)
    if digest.hexdigest() != md5:
        published = f"{size} bytes, md5 {md5}" if size else f"md5 {md5}"
        raise UserError(
            f"{path}: {os.path.getsize(path)} bytes, md5 {digest.hexdigest()}; {name} has {published}. Use an intact "
            "copy, or --small DATA for any other text"
        )


def count_lines(path: str) -> int:
    """The number of lines of a file."""
    with open(path, "rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(CHUNK), b""))


def check_lines(path: str, number: int) -> None:
    """Stop unless a file is text in UTF-8 with this number of lines."""
    check_text(path)
    lines = count_lines(path)
    if lines != number:
        raise UserError(f"{path}: {lines} lines, not {number}; use the corpus named in the README, or --small")


def preprocess(shell: Shell, folder: str, splits: Sequence[str], target: str, options: Options) -> None:
    """Binarise text in words, files in one folder, with ``fairseq-preprocess``. ``splits`` are the names, or their
    beginnings, of the training, validation and test file."""
    inside = "," in folder  # fairseq splits names at commas: from within the folder, it sees none
    names = [split if inside else os.path.join(folder, split) for split in splits]
    prefixes = [word for option, name in zip(("train", "valid", "test"), names) for word in (f"--{option}pref", name)]
    command = ("fairseq-preprocess", *prefixes, "--destdir", target, "--workers", 1, *words(options))
    log = os.path.join(os.path.dirname(target), "preprocess.out")
    shell.run(*command, what="preprocessing", log=log, folder=folder if inside else None)


def preprocess_bytes(shell: Shell, text: str, target: str, log: str | None = None) -> None:
    """Binarise the bytes of a file: 90 % for training, 5 % each for validation and testing."""
    command = ("python", "-m", "fb_fairseq", "preprocess-bytes", "--text", text, "--split", "90,5,5")
    shell.run(*command, "--destdir", target, "--overwrite", what="preprocessing", log=log)  # beside other files


def apply_bpe(shell: Shell, folder: str, pair: Sequence[str], merges: int) -> None:
    """Learn one BPE code from both languages of ``train.tok.xx``, write ``{train,valid,test}.tok.xx`` in subwords to
    ``{train,valid,test}.bpe.xx``, and binarise them."""
    both, codes = (os.path.join(folder, name) for name in ("train.tok", "codes"))
    log = os.path.join(os.path.dirname(folder), "bpe.err")
    shell.run("cat", *(f"{both}.{language}" for language in pair), what="BPE", log=log, write=both)
    shell.run("subword-nmt", "learn-bpe", "-s", merges, what="BPE", log=log, read=both, write=codes)
    shell.run("rm", both)
    for language in pair:
        for split in ("train", "valid", "test"):
            source, target = (os.path.join(folder, f"{split}.{kind}.{language}") for kind in ("tok", "bpe"))
            shell.run("subword-nmt", "apply-bpe", "-c", codes, what="BPE", log=log, read=source, write=target)
    options = dict(joined_dictionary=True, source_lang=pair[0], target_lang=pair[1])
    preprocess(shell, folder, ["train.bpe", "valid.bpe", "test.bpe"], folder, options)
