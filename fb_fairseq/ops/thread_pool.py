"""Work that threads share."""

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

import torch


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
    waiting = iter(tasks)
    inference, gradients = torch.is_inference_mode_enabled(), torch.is_grad_enabled()  # each thread has its own

    def work() -> None:
        with torch.inference_mode(inference), torch.set_grad_enabled(gradients):
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
