"""Buffers that are used again: the fast step loop needs the same ones for each block.

On a CPU, memory that is new from the operating system costs more time than many products (a page fault for each 4 KB),
and freed large pieces go back to it. So what a block has used is kept for the next one. On a GPU torch's allocator does
that already, and buffers are torch's own.
"""

import math
import threading
from typing import List

import torch
from torch import Tensor

CHUNK = 4 << 20  # bytes that are asked for at least
ALIGNMENT = 64
_free: List[Tensor] = []
_largest = 0
_lock = threading.Lock()


class Buffers:
    """A block's buffers. They are free for others when this object is gone: whoever uses one holds it too."""

    poison = False  # for tests: new buffers hold NaN
    in_use = 0  # bytes of all buffers whose holders are there

    def __init__(self, device: torch.device):
        self.device = device
        self._chunks: List[Tensor] = []
        self._used = 0  # bytes of the last chunk
        self._size = 0

    def empty(self, *shape: int, dtype: torch.dtype) -> Tensor:
        size = math.prod(shape) * dtype.itemsize
        self._size += size
        Buffers.in_use += size
        if self.device.type != "cpu":
            return torch.empty(shape, dtype=dtype, device=self.device)
        start = -(-self._used // ALIGNMENT) * ALIGNMENT
        if not self._chunks or start + size > len(self._chunks[-1]):
            self._chunks.append(_take(size))
            start = 0
        self._used = start + size
        buffer = self._chunks[-1][start : start + size].view(dtype).view(shape)
        return buffer.fill_(float("nan")) if self.poison and dtype.is_floating_point else buffer

    def zeros(self, *shape: int, dtype: torch.dtype) -> Tensor:
        return self.empty(*shape, dtype=dtype).zero_()

    def __del__(self):
        Buffers.in_use -= self._size
        _give_back(self._chunks)


def release_free() -> None:
    """Hand what no block uses back to the operating system."""
    with _lock:
        _free.clear()


def _take(size: int) -> Tensor:
    """The smallest free chunk of so many bytes or more, or a new one."""
    with _lock:
        fitting = [i for i, chunk in enumerate(_free) if size <= len(chunk)]
        if fitting:
            return _free.pop(min(fitting, key=lambda i: len(_free[i])))
    return torch.empty(max(size, CHUNK), dtype=torch.uint8)


def _give_back(chunks: List[Tensor]) -> None:
    """Keep them, but no more than twice of what the largest block so far has used."""
    global _largest
    with _lock:
        _free.extend(chunks)
        _largest = max(_largest, sum(map(len, chunks)))
        while sum(map(len, _free)) > 2 * _largest:
            del _free[0]
