"""CPU threads and buffers of the step loops.

A step's operations are small. If several threads share them, the threads wait for each other thousands of times a
second, and where another process keeps one of the cores busy, each wait takes a time slice of the operating system. So
torch uses one thread inside the loops, unless a product is large. The C++ loop divides the streams among threads,
which meet once per block. No rule depends on measured times, so that results can be reproduced.

The torch loop needs the same buffers for each block. On a CPU, memory that is new from the operating system costs more
time than many matrix products (a page fault for each 4 KB), and large pieces that are freed go back to the operating
system. So the buffers of a block are kept for the next one. On a GPU torch's allocator does that already, and buffers
are ordinary tensors.

Keeps the step loops out of ``torch.compile``, ``torch.jit.trace`` and ``torch.export``, which cannot follow their
reused buffers and native calls."""

import functools
import logging
import math
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

# About a millisecond of one core.
LARGE_PRODUCT = 1 << 27  # multiplications and additions
LONG_RANGE = 16  # streams that make a range efficient, because they share what is read of the weights
RANGES_PER_THREAD = 4

# Work outside of the loops is worth several threads if its largest product takes some time slices.
LARGE_OUTSIDE_PRODUCT = 1 << 30

logger = logging.getLogger(__name__)

_pool: ThreadPoolExecutor | None = None
_width = 1
_kept = 1  # threads that only the C++ loop uses, because torch has one
_loop = threading.local()  # .threads: those outside of the loop that runs on this thread
CHUNK = 4 << 20  # smallest size of a chunk, in bytes: small buffers share one
ALIGNMENT = 64  # bytes, of each buffer: a cache line, and the widest vector registers
KEPT_BLOCKS = 2  # bound on free memory, in blocks of the largest size so far
_free: list[Tensor] = []
_largest = 0  # bytes of the largest block so far
_lock = threading.Lock()
# Chunks of blocks that are gone. A destructor must not wait for the lock: the garbage collector may run it in the very
# thread that holds it. The next buffer collects the chunks that it leaves here, which needs no lock.
_returned: deque[list[Tensor]] = deque()


@contextmanager
def loop_threads(device: torch.device, largest_product: int) -> Iterator[int]:
    """Context of a step loop: torch on one thread if the loop's products are small and on the CPU.

    Args:
        largest_product: multiplications and additions of the loop's largest product.

    Yields:
        How many threads torch has outside of the loop."""
    outside = getattr(_loop, "threads", None)
    if outside is not None:  # a loop within a loop
        yield outside
        return
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads == 1 or largest_product >= LARGE_PRODUCT:
        yield threads if threads > 1 else _kept
        return
    torch.set_num_threads(1)
    _loop.threads = threads
    try:
        yield threads
    finally:
        _loop.threads = None
        torch.set_num_threads(threads)


def keep_threads_for_loops(largest_product: int) -> None:
    """If everything that a training process computes is small, run torch on one thread from now on; the C++ loop keeps
    as many as torch had. Logged. ``largest_product``: multiplications and additions of the largest product outside of
    the loops."""
    global _kept
    threads = torch.get_num_threads()
    if threads == 1 or largest_product >= LARGE_OUTSIDE_PRODUCT:
        return
    _kept = threads
    torch.set_num_threads(1)
    logger.info(f"step loop: small model, so torch uses 1 thread, and the C++ loop {threads}")


def each_range(function: Callable[[int, int], None], count: int, threads: int) -> None:
    """Call ``function(first, last)`` for ranges of ``range(count)`` on several threads, and wait for them.

    There are more ranges than threads if they are long enough, so that a thread on a busy core does fewer of them."""
    if threads <= 1:
        return function(0, count)
    ranges = min(count, max(threads, min(RANGES_PER_THREAD * threads, count // LONG_RANGE)))
    bounds = [count * i // ranges for i in range(ranges + 1)]
    each([partial(function, *bounds[i : i + 2]) for i in range(ranges)], threads)


def each(tasks: list[Callable[[], object]], threads: int) -> None:
    """Run tasks on this thread and ``threads - 1`` others, and wait for them. Each task is run by one thread, so that
    its results do not depend on their number."""
    if threads <= 1 or len(tasks) <= 1:
        for task in tasks:
            task()
        return
    waiting, gradients = list(reversed(tasks)), torch.is_grad_enabled()

    def work() -> None:
        with torch.set_grad_enabled(gradients):
            while True:
                try:
                    task = waiting.pop()
                except IndexError:
                    return
                task()

    others = [_threads(threads).submit(work) for _ in range(min(threads, len(tasks)) - 1)]
    work()
    for other in others:
        other.result()


def _threads(threads: int) -> ThreadPoolExecutor:
    """The pool, with at least ``threads - 1`` threads beside the caller's."""
    global _pool, _width
    if _pool is None or threads > _width:
        _width = threads
        _pool = ThreadPoolExecutor(threads - 1, thread_name_prefix="fb_fairseq")
    return _pool


def _forget_threads() -> None:
    """In a process that was forked, none of the threads exist."""
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


class Buffers:
    """The buffers of one block, in chunks of memory that the next block takes over when this object is gone.

    After that a buffer's memory is overwritten: keep a reference to this object while using its buffers."""

    poison = False  # for tests: fill new buffers with NaN
    in_use = 0  # total bytes of the buffers of all objects that exist

    def __init__(self, device: torch.device):
        self.device = device
        self._chunks: list[Tensor] = []
        self._used = 0  # bytes of the last chunk
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
                self._chunks.append(_take(size))
                start = 0
            self._used = start + size
            buffer = self._chunks[-1][start : start + size].view(dtype).view(shape)
        return buffer.fill_(float("nan")) if self.poison and dtype.is_floating_point else buffer

    def zeros(self, *shape: int, dtype: torch.dtype) -> Tensor:
        """A new buffer, filled with zeros."""
        return self.empty(*shape, dtype=dtype).zero_()

    def __del__(self):
        Buffers.in_use -= self._size
        _returned.append(self._chunks)
        if _lock.acquire(blocking=False):
            try:
                _collect()
            finally:
                _lock.release()


def release_free() -> None:
    """Give chunks that no block uses back to the operating system."""
    with _lock:
        _collect()
        _free.clear()


def _take(size: int) -> Tensor:
    """The smallest free chunk of at least ``size`` bytes, or a new one."""
    with _lock:
        _collect()
        fitting = [i for i, chunk in enumerate(_free) if size <= len(chunk)]
        if fitting:
            return _free.pop(min(fitting, key=lambda i: len(_free[i])))
    return torch.empty(max(size, CHUNK), dtype=torch.uint8)


def _collect() -> None:
    """Keep the chunks of blocks that are gone for later ones; drop the oldest free ones that exceed ``KEPT_BLOCKS``."""
    global _largest
    while _returned:
        chunks = _returned.popleft()
        _free.extend(chunks)
        _largest = max(_largest, sum(map(len, chunks)))
    while sum(map(len, _free)) > KEPT_BLOCKS * _largest:
        del _free[0]


def outside_compiler(function: Callable) -> Callable:
    """Decorator: in a compiled model the function runs as it is, between two compiled parts of the model.

    ``torch.compiler.disable`` does that, but takes seconds to import. So it is applied at the first call in a process
    that has imported the compiler already, as ``torch.compile`` and torch's optimizers do; then a call takes two
    microseconds more."""

    disabled: list[Callable] = []

    @functools.wraps(function)
    def run(*args, **kwargs):
        if "torch._dynamo" not in sys.modules:
            return function(*args, **kwargs)
        if not disabled:
            disabled.append(torch.compiler.disable(function))
        return disabled[0](*args, **kwargs)

    return run


def is_tracing() -> bool:
    """Whether ``torch.jit.trace`` or ``torch.export`` looks on, ``torch.onnx.export`` included."""
    exporting = getattr(torch.compiler, "is_exporting", None)  # from torch 2.7 on
    return torch.jit.is_tracing() or (exporting is not None and exporting())
