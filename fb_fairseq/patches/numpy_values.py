"""numpy's scalars and arrays in checkpoints, checked before they are built.

numpy's own functions trust a pickle: a type with a negative size, for example, ends the process. These take their
places while a checkpoint is read: ``torch.load`` finds them under numpy's names (``STAND_INS``).
"""

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

MULTIARRAY = ("numpy.core.multiarray", "numpy._core.multiarray")  # numpy 1, numpy 2
PLAIN_TYPES = re.compile(r"b1|[iu][1248]|f[248]|U\d{1,4}")  # booleans, numbers, text


def named(module: str, name: str) -> Callable:
    """A decorator that makes ``torch.load`` find a function or class under another name."""

    def rename(target):
        target.__module__, target.__name__, target.__qualname__ = module, name, name
        return target

    return rename


@named("numpy", "dtype")
class PlainType:
    """In place of ``numpy.dtype``.

    Attributes:
        dtype: the type that it stands for.

    Raises:
        ValueError: it is not one of ``PLAIN_TYPES``.
    """

    def __init__(self, code: Any, *unused):
        if not isinstance(code, str) or not PLAIN_TYPES.fullmatch(code):
            raise ValueError("not a plain type")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: Any) -> None:
        _, order, *inner = state[:5]
        if order not in ("<", ">", "|", "=") or inner != [None] * 3:
            raise ValueError("not a plain type")
        self.dtype = self.dtype.newbyteorder(order)


@named("numpy", "ndarray")
class PlainArray(np.ndarray):
    """In place of ``numpy.ndarray``. It is saved as an ordinary array."""

    def __new__(cls, *unused):
        raise ValueError("an array without its values")

    def __setstate__(self, state: Any) -> None:
        version, shape, kind, is_fortran, data = state
        check_data(kind, shape, data)
        super().__setstate__((version, shape, kind.dtype, bool(is_fortran), data))

    def __reduce_ex__(self, protocol):
        return np.asarray(self).__reduce_ex__(protocol)


def check_data(kind: Any, shape: Any, data: Any) -> None:
    """Check that bytes are the values of an array of some shape.

    Raises:
        ValueError: they are not.
    """
    is_shape = isinstance(shape, tuple) and all(type(size) is int and size >= 0 for size in shape)
    if not (isinstance(kind, PlainType) and is_shape and isinstance(data, bytes)):
        raise ValueError("not an array of plain values")
    if len(data) != math.prod(shape) * kind.dtype.itemsize:
        raise ValueError("an array of another size")


def build_array(kind: Any, shape: Any, code: Any) -> PlainArray:
    """In place of ``numpy.core.multiarray._reconstruct``, which makes an array that is filled afterwards."""
    return np.ndarray.__new__(PlainArray, (0,), "i1")


def build_scalar(kind: PlainType, data: Any = b"") -> Any:
    """In place of ``numpy.core.multiarray.scalar``."""
    check_data(kind, (), data)
    return np.frombuffer(data, kind.dtype)[0] if data else kind.dtype.type()


def stand_ins() -> list[Any]:
    """Functions that ``torch.load`` may call in place of numpy's."""
    functions = {"_reconstruct": build_array, "scalar": build_scalar}
    found: list[Any] = [PlainType, PlainArray]
    for module in MULTIARRAY:
        for name, function in functions.items():
            found.append(named(module, name)(lambda *args, function=function: function(*args)))
    return found


STAND_INS = stand_ins()
