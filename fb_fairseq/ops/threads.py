"""CPU threads of the step loops.

A step's operations are small. If several threads share them, the threads wait for each other thousands of times a
second, and where another process keeps one of the cores busy, each wait takes a time slice of the operating system. So
torch uses one thread inside the loops, unless a product is large. The C++ loop divides the streams among threads
(``thread_pool.py``), which meet once per block. No rule depends on measured times, so that results can be reproduced.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

# About a millisecond of one core.
LARGE_PRODUCT = 1 << 27  # multiplications and additions

# Work outside of the loops is worth several threads if its largest product takes some time slices.
LARGE_OUTSIDE_PRODUCT = 1 << 30

logger = logging.getLogger(__name__)

_kept = 1  # threads that only the C++ loop uses, because torch has one
_loop = threading.local()  # .threads: those outside of the loop that runs on this thread


@contextmanager
def loop_threads(device: torch.device, largest_product: int) -> Iterator[int]:
    """Context of a step loop: torch on one thread if the loop's products are small and on the CPU.

    Args:
        device: of the loop.
        largest_product: multiplications and additions of the loop's largest product.

    Yields:
        How many threads torch has outside of the loop.
    """
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
    the loops.
    """
    global _kept
    threads = torch.get_num_threads()
    if threads == 1 or largest_product >= LARGE_OUTSIDE_PRODUCT:
        return
    _kept = threads
    torch.set_num_threads(1)
    logger.info(f"step loop: small model, so torch uses 1 thread, and the C++ loop {threads}")
