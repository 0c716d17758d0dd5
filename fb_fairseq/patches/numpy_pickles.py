"""numpy's scalars and arrays in checkpoints: built by stand-ins of numpy's own classes and functions.

numpy's own would build what ends the process, or worse: types that take bytes for the addresses of objects. The
stand-ins look at what they are given first, and build plain types alone.
"""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fb_fairseq.patches.wrapping import wrap_once

MULTIARRAY = ("numpy.core.multiarray", "numpy._core.multiarray")  # numpy 1, numpy 2
PLAIN_TYPES = re.compile(r"b1|[iu][1248]|f[248]|U\d{1,4}")  # booleans, numbers, text


class PlainType:
    """In place of ``numpy.dtype``: the name of one of ``PLAIN_TYPES``, and an order of bytes.

    Args:
        code: numpy's short name of a type, such as ``f8``.

    Attributes:
        dtype: the type that it stands for.

    Raises:
        ValueError: it is another type.
    """

    def __init__(self, code: str, *unused):
        if not PLAIN_TYPES.fullmatch(code):
            raise ValueError("not a plain type")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: tuple) -> None:
        self.dtype = self.dtype.newbyteorder(state[1])  # the rest is of types that are not plain


class PlainArray(np.ndarray):
    """In place of ``numpy.ndarray``: an array of a ``PlainType``. It is saved as an ordinary array."""

    def __new__(cls, *unused):
        raise ValueError("an array without its values")

    def __setstate__(self, state: tuple) -> None:
        version, shape, kind, is_fortran, data = state
        if not all(size >= 0 for size in shape):
            raise ValueError("not a shape")
        super().__setstate__((version, shape, kind.dtype, is_fortran, data))  # compares the size of the data

    def __reduce_ex__(self, protocol):
        return np.asarray(self).__reduce_ex__(protocol)


def scalar(kind: PlainType, data: bytes) -> Any:
    """In place of numpy's ``scalar``.

    Args:
        kind: of the number.
        data: its bytes.

    Raises:
        ValueError: ``kind`` is something else, or ``data`` are too short.
    """
    if not isinstance(kind, PlainType):
        raise ValueError("not a plain type")
    return np.frombuffer(data, kind.dtype, 1)[0]


def named(target: Callable, module: str, name: str) -> Callable:
    """Make ``torch.load`` find a class or function under the name of one of numpy's.

    Args:
        target: the class or function; changed in place.
        module: the module of numpy's.
        name: its name there.

    Returns:
        ``target``.
    """
    target.__module__ = module
    target.__name__ = target.__qualname__ = name
    return target


def stand_ins() -> list[Callable]:
    """The classes and functions that ``torch.load`` may call in place of numpy's.

    A function has one name, so each of numpy's modules gets functions of its own. ``_reconstruct`` makes an array that
    is filled afterwards, by ``PlainArray.__setstate__``.
    """
    found = [named(PlainType, "numpy", "dtype"), named(PlainArray, "numpy", "ndarray")]
    for module in MULTIARRAY:
        found.append(named(lambda *unused: np.ndarray.__new__(PlainArray, (0,), "i1"), module, "_reconstruct"))
        found.append(named(lambda *args: scalar(*args), module, "scalar"))
    return found


STAND_INS = stand_ins()


def patch_foreign_numpy() -> None:
    """Let a program that allows numpy's own functions, such as transformers' ``Trainer``, read its own files with them.

    torch knows each name once: with some functions of numpy's and some of ours, neither's files could be read.

    Affects: fairseq 0.12.2, fairseq-fixed 0.12.3.1, because of what ``patch_safe_globals`` does.
    Remove when: numpy builds no types from a pickle that end the process.
    """
    wrap_once(torch, "load", "foreign_numpy", _load_beside_numpy)


def _load_beside_numpy(original, *args, **kwargs):
    allowed = list(torch.serialization.get_safe_globals())
    others = [entry for entry in allowed if entry not in STAND_INS]
    if not set(map(_full_name, STAND_INS)) & set(map(_full_name, others)):
        return original(*args, **kwargs)
    torch.serialization.clear_safe_globals()
    torch.serialization.add_safe_globals(others)
    try:
        return original(*args, **kwargs)
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(allowed)


def _full_name(entry: Any) -> str:
    # torch is given a function or class, or a pair of it and its name
    if isinstance(entry, tuple):
        return entry[1]
    return f"{entry.__module__}.{getattr(entry, '__qualname__', entry)}"
