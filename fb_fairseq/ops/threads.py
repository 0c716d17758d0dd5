"""CPU threads of the step loops.

A step's operations are small. If several threads share them, the threads wait for each other thousands of times a
second, and where another process keeps one of the cores busy, each wait takes a time slice of the operating system. So
torch uses one thread inside the loops, unless a product is large. The C++ loop divides the streams among threads,
which meet once per block. No rule depends on measured times, so that results can be reproduced.
"""

import functools
import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
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


def each_range(function: Callable[[int, int], None], count: int, threads: int) -> None:
    """Call ``function(first, last)`` for ranges of ``range(count)``, one on each thread, and wait for them."""
    if threads <= 1:
        return function(0, count)  # (a step of decoding takes a few times as long as the lines below)
    ranges = min(count, threads)
    bounds = [count * i // ranges for i in range(ranges + 1)]
    each([functools.partial(function, *bounds[i : i + 2]) for i in range(ranges)], threads)


def each(tasks: list[Callable[[], object]], threads: int) -> None:
    """Run tasks on this thread and ``threads - 1`` others, and wait for them. Each task is run by one thread, so that
    its results do not depend on their number.
    """
    if threads <= 1 or len(tasks) <= 1:
        for task in tasks:
            task()
        return
    waiting, gradients = iter(tasks), torch.is_grad_enabled()

    def work() -> None:
        with torch.set_grad_enabled(gradients):
            for task in waiting:  # the threads share the iterator
                task()

    others = [_pool(threads).submit(work) for _ in range(min(threads, len(tasks)) - 1)]
    try:
        work()
    finally:
        wait(others)
    for other in others:
        other.result()


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """The ``threads - 1`` threads beside the caller's."""
    return ThreadPoolExecutor(threads - 1, thread_name_prefix="fb_fairseq")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # in a process that was forked, none of the threads exist
