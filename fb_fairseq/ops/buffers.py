"""Buffers of the step loops, which blocks use one after the other.

The loops need the same buffers for each block. On a CPU, memory that is new from the operating system costs more
time than many matrix products (a page fault for each 4 KB), and large pieces that are freed go back to the operating
system. So the buffers of a block are kept for the next one. On a GPU torch's allocator does that already, and buffers
are ordinary tensors.
"""

import math
import threading
from collections import deque

import torch
from torch import Tensor

CHUNK = 4 << 20  # smallest size of a chunk, in bytes: small buffers share one
ALIGNMENT = 64  # bytes, of each buffer: a cache line, and the widest vector registers
KEPT_BLOCKS = 2  # bound on free memory, in blocks of the largest size so far


class Pool:
    """The free chunks of memory.

    Attributes:
        free: the chunks.
        largest: bytes of the largest block so far.
        returned: chunks of blocks that are gone. A destructor must not wait for the lock: the garbage collector may run
            it in the very thread that holds it. The next buffer collects the chunks that it leaves here, which needs no
            lock.
    """

    def __init__(self):
        self.free: list[Tensor] = []
        self.largest = 0
        self.returned: deque[list[Tensor]] = deque()
        self.lock = threading.Lock()

    def take(self, size: int) -> Tensor:
        """The smallest free chunk of at least ``size`` bytes, or a new one."""
        with self.lock:
            self._collect()
            fitting = [i for i, chunk in enumerate(self.free) if size <= len(chunk)]
            if fitting:
                return self.free.pop(min(fitting, key=lambda i: len(self.free[i])))
        return torch.empty(max(size, CHUNK), dtype=torch.uint8)

    def release(self) -> None:
        """Give the free chunks back to the operating system."""
        with self.lock:
            self._collect()
            self.free.clear()

    def _collect(self) -> None:
        """Keep the chunks of blocks that are gone; drop the oldest free ones that exceed ``KEPT_BLOCKS``."""
        while self.returned:
            chunks = self.returned.popleft()
            self.free.extend(chunks)
            self.largest = max(self.largest, sum(map(len, chunks)))
        while sum(map(len, self.free)) > KEPT_BLOCKS * self.largest:
            del self.free[0]


POOL = Pool()


class Buffers:
    """The buffers of one block, in chunks of memory that the next block takes over when this object is gone.

    After that a buffer's memory is overwritten: keep a reference to this object while using its buffers.

    Attributes:
        in_use: of the class: total bytes of the buffers of all objects that exist (if one thread makes them: it is not
            locked).
    """

    in_use = 0

    def __init__(self, device: torch.device):
        self.device = device
        self._chunks: list[Tensor] = []
        self._used = 0  # bytes of the last chunk that are taken
        self._size = 0  # bytes of all buffers
        self._lock = threading.Lock()

    def empty(self, *shape: int, dtype: torch.dtype) -> Tensor:
        """A new buffer, uninitialised."""
        size = math.prod(shape) * dtype.itemsize
        with self._lock:
            self._size += size
            Buffers.in_use += size
            if self.device.type != "cpu":
                return torch.empty(shape, dtype=dtype, device=self.device)
            start = math.ceil(self._used / ALIGNMENT) * ALIGNMENT
            if not self._chunks or start + size > len(self._chunks[-1]):
                self._chunks.append(POOL.take(size))
                start = 0
            self._used = start + size
            return self._chunks[-1][start : start + size].view(dtype).view(shape)

    def zeros(self, *shape: int, dtype: torch.dtype) -> Tensor:
        """A new buffer, filled with zeros."""
        return self.empty(*shape, dtype=dtype).zero_()

    def __del__(self):
        Buffers.in_use -= self._size
        POOL.returned.append(self._chunks)
