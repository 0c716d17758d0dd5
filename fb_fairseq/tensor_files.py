"""Files of tensors (``torch.save``): read as data only, checked for damage, and written whole or not at all.

Reading a pickle can run any code that its author put there, so every file is read with ``weights_only=True``: tensors,
plain data, and the few classes that ``fb_fairseq.patches.safe_loading`` names.
"""

import argparse
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from fb_fairseq.errors import UserError, debugging, explain, names_an_option
from fb_fairseq.files import atomic_write

# The training state (``extra_state``) of a checkpoint that no training has written: a run from it is a new one.
NEW_TRAINING = {
    "train_iterator": {"version": 2, "epoch": 1, "iterations_in_epoch": 0, "shuffle": True},
    "metrics": [],
    "previous_training_time": 0,
}


def load_file(path: str, mapped: bool = False) -> Any:
    """Load a file, its tensors on the CPU.

    Args:
        path: the file.
        mapped: leave the values of tensors in the file until they are used, where its format allows that.
    """
    with open(path, "rb") as file:
        is_archive = file.read(2) == b"PK"  # as torch writes files since 1.6; older ones have no checksums
    if is_archive:
        check_intact(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped and is_archive)
    except OSError:
        raise
    except Exception as error:  # unpickling a file of another kind can fail in any way
        raise unsafe_file(path, error) from None


def load_checkpoint(path: str, mapped: bool = False) -> dict[str, Any]:
    """Load a checkpoint as fairseq saved it.

    Import ``fb_fairseq.patches`` first: its safe globals are what fairseq's checkpoints contain beside tensors.

    ``mapped``: see ``load_file``.
    """
    content = load_file(path, mapped)
    if not isinstance(content, dict) or "model" not in content:
        raise UserError(f"{path}: not a checkpoint of fairseq; give a file such as checkpoint_best.pt")
    return content


def check_intact(path: str) -> None:
    """Check that a file is a complete zip archive, as ``torch.save`` writes it, with correct checksums. (``torch.load``
    takes flipped bits for data.)
    """
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip() is not None
    except Exception:  # a damaged directory of the archive can raise anything: NotImplementedError, UnicodeDecodeError
        damaged = True
    if damaged:
        raise UserError(f"{path}: is truncated or corrupt; give an intact copy, or an earlier checkpoint")


def unsafe_file(path: str, error: Exception) -> UserError:
    """The error for a file that ``torch.load`` has refused; torch's own message advises switching the protection
    off."""
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


def model_options(checkpoint: dict[str, Any], part: str = "model") -> dict[str, Any]:
    """The options of a checkpoint's model, by name. ``part``: ``task`` gives those of its task; before fairseq 0.11,
    the two are one.
    """
    cfg = checkpoint.get("cfg")
    found = cfg.get(part) if isinstance(cfg, Mapping) else checkpoint.get("args")
    found = vars(found) if isinstance(found, argparse.Namespace) else found
    return dict(found) if isinstance(found, Mapping) else {}


@contextmanager
def using(path: str) -> Iterator[None]:
    """Context of building something from a checkpoint: whatever goes wrong becomes one line about this file."""
    try:
        yield
    except Exception as error:  # values that do not fit the options' types fail in any function that takes them
        if explain(error) is not None or names_an_option(error) or debugging():
            raise
        lines = str(error).strip().splitlines() or [""]
        raise UserError(
            f"{path}: its content does not fit ({type(error).__name__}: {lines[0][:200]}); give an intact checkpoint"
        ) from error
