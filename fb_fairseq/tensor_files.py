"""Files of tensors (``torch.save``): read as data only, checked for damage, and written whole or not at all.

Reading a pickle can run any code that its author put there, so every file is read with ``weights_only=True``: tensors,
plain data, and the few classes that ``fb_fairseq.patches.safe_loading`` names."""

import os
import re
import zipfile
from typing import Any

import torch

from fb_fairseq.checkpoint_contents import check_checkpoint, check_plain
from fb_fairseq.errors import UserError
from fb_fairseq.files import atomic_write, check_regular

DAMAGED = "is truncated or corrupt"
# What a checkpoint that no training has written says of its training (``extra_state``): one that starts from it begins.
NEW_TRAINING = {
    "train_iterator": {"version": 2, "epoch": 1, "iterations_in_epoch": 0, "shuffle": True},
    "metrics": [],
    "previous_training_time": 0,
}
WRITER = "written_by"  # first entry of a checkpoint that a command writes: its name, which stands in the first bytes


def load_file(path: str, mapped: bool = False) -> Any:
    """Load a file, its tensors on the CPU. ``mapped``: leave the values of tensors in the file until they are used,
    where its format allows that."""
    is_archive = check_intact(path)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped and is_archive)
        if isinstance(content, torch.nn.Module):  # older versions of torch load TorchScript too
            raise TypeError("TorchScript")
    except OSError:
        raise
    except Exception as error:  # unpickling a file of another kind can fail in any way
        raise refusal(path, error) from None
    check_plain(path, content)
    return content


def load_checkpoint(path: str, mapped: bool = False) -> dict[str, Any]:
    """Load a checkpoint as fairseq saved it.

    Import ``fb_fairseq.patches`` first: its safe globals are what fairseq's checkpoints contain beside tensors.

    ``mapped``: see ``load_file``."""
    content = load_file(path, mapped)
    check_checkpoint(path, content)
    return content


def check_intact(path: str) -> bool:
    """Check that a file can be read, and verify its checksums: ``torch.load`` does not, it takes flipped bits for data.

    Files from before torch 1.6 have no checksums, and pass.

    Returns:
        Whether the file is an archive, as torch writes it since 1.6."""
    check_regular(path)
    with open(path, "rb") as file:
        is_archive = file.read(2) == b"PK"
    if is_archive and not is_intact(path):
        raise UserError(f"{path}: {DAMAGED}; give an intact copy")
    return is_archive


def is_intact(path: str) -> bool:
    """Whether the file is a complete zip archive, as ``torch.save`` writes it, with correct checksums."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except Exception:  # a damaged directory of the archive can raise anything: NotImplementedError, UnicodeDecodeError
        return False


def refusal(path: str, error: Exception) -> UserError:
    """The error for a file that ``torch.load`` has refused; its own message advises to switch the protection off."""
    found = re.search(r"(?:GLOBAL|global:?|class) ([\w.]+\.\w+)", str(error))
    what = f" ({found[1]})" if found else ""
    return UserError(
        f"{path}: not a checkpoint, or one with objects that are not data{what}; it was not loaded, because such "
        "objects can run any code"
    )


def save_file(content: Any, path: str) -> None:
    """Save tensors and plain data, or fail and leave what stood at ``path`` before."""
    with atomic_write(path) as temporary:
        try:
            with open(temporary, "wb") as file:
                torch.save(content, file)
        except RuntimeError as error:  # torch's, in place of "No space left on device"
            cause = error.__context__
            if isinstance(cause, OSError):
                raise OSError(cause.errno, os.strerror(cause.errno), path) from None
            raise
