"""Damaged and odd files from a seed: values in checkpoints that are not what they should be, flipped bits, cuts."""

import argparse
import copy
import os
import pathlib
import random
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tests.malicious import touch

DELETED = object()


def within_itself() -> list:
    value: list = []
    value.append(value)
    return value


def expanding(depth: int = 40) -> list:
    """A list of a few objects, which is enormous when written out."""
    value: Any = [1]
    for _ in range(depth):
        value = [value, value]
    return value


# Each call gives a new value.
ODD_VALUES: dict[str, Callable[[], Any]] = {
    "deleted": lambda: DELETED,
    "None": lambda: None,
    "empty list": list,
    "empty dict": dict,
    "text": lambda: "x",
    "-1": lambda: -1,
    "10^9": lambda: 10**9,
    "10^30": lambda: 10**30,
    "1e300": lambda: 1e300,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "True": lambda: True,
    "nested list": lambda: [1, [2, None]],
    "other keys": lambda: {1: 2, None: "x"},
    "bytes": lambda: b"x",
    "zero-dimensional": lambda: torch.zeros(()),
    "no numbers": lambda: torch.zeros(0, 3),
    "sparse": lambda: torch.eye(3).to_sparse(),
    "complex": lambda: torch.zeros(3, dtype=torch.complex64),
    "whole numbers": lambda: torch.arange(12).view(3, 4),
    "expanded": lambda: torch.zeros(1).expand(10**9),
    "numpy's nan": lambda: np.float64("nan"),
    "array": lambda: np.zeros(3),
    "options": lambda: argparse.Namespace(x=1),
    "within itself": within_itself,
    "expanding": expanding,
}


def places(content: Any, prefix: tuple = (), depth: int = 5) -> list[tuple]:
    """The keys of all parts of a checkpoint, but for what lies within tensors."""
    if isinstance(content, dict):
        parts = list(content.items())
    elif isinstance(content, argparse.Namespace):
        parts = list(vars(content).items())
    elif isinstance(content, list):
        parts = list(enumerate(content))
    else:
        return []
    found = []
    for key, value in parts:
        found.append((*prefix, key))
        if depth:
            found += places(value, (*prefix, key), depth - 1)
    return found


def with_value(content: Any, keys: tuple, value: Any) -> Any:
    """A copy of a checkpoint with another value at a place."""
    content = copy.deepcopy(content)
    owner = content
    for key in keys[:-1]:
        owner = vars(owner)[key] if isinstance(owner, argparse.Namespace) else owner[key]
    owner = vars(owner) if isinstance(owner, argparse.Namespace) else owner
    if value is DELETED:
        del owner[keys[-1]]
    else:
        owner[keys[-1]] = value
    return content


def odd_checkpoint(draw: random.Random, content: Any, marker: pathlib.Path) -> tuple[str, Any]:
    """What was done, and a checkpoint with an odd value, which may be code that creates ``marker``. Places near the top
    are as likely as all below them."""
    choices = places(content)
    depth = draw.choice(sorted({len(keys) for keys in choices}))
    keys = draw.choice([keys for keys in choices if len(keys) == depth])
    values = {**ODD_VALUES, "code": lambda: touch(marker)}
    name = draw.choice(list(values))
    return f"{'.'.join(map(str, keys))} = {name}", with_value(content, keys, values[name]())


def damage(draw: random.Random, path: pathlib.Path) -> str:
    """Flip a bit of a file, cut it, or overwrite a few bytes. Returns what was done."""
    content = bytearray(path.read_bytes())
    at = draw.randrange(len(content))
    kind = draw.choice(["flip", "flip", "cut", "overwrite", "repeat"])
    if kind == "flip":
        content[at] ^= 1 << draw.randrange(8)
    elif kind == "cut":
        del content[at:]
    elif kind == "overwrite":
        content[at : at + 8] = struct.pack("<q", draw.choice([-1, 0, 2**31, 2**62]))
    else:
        content[at:at] = content[at : at + 100]
    path.write_bytes(bytes(content))
    return f"{path.name}: {kind} at {at}"


def odd_file(draw: random.Random, path: pathlib.Path) -> str:
    """Replace a file by something that is no such file. Returns what was done."""
    path.unlink()
    kind = draw.choice(["pipe", "device", "empty", "folder", "text", "link to itself"])
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "empty":
        path.touch()
    elif kind == "folder":
        path.mkdir()
    elif kind == "text":
        path.write_text("some text\n" * 50)
    else:
        path.symlink_to(path)
    return f"{path.name}: {kind}"
