"""The time of calls, and of works that take turns."""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from fb_fairseq.papers.benchmark.work import Work, is_gpu, release, synchronize

R = TypeVar("R")


def seconds(function: Callable, device: str) -> float:
    """Wall-clock time of a call, including the work that it leaves running on the GPU."""
    synchronize(device)
    start = time.perf_counter()
    function()
    synchronize(device)
    return time.perf_counter() - start


def interleaved_medians(functions: Sequence[Callable], device: str, repeats: int) -> list[float]:
    """Median time of functions, after a first call that is not counted. They take turns, so that other load on the
    machine slows down all of them alike.

    Args:
        functions: what is timed.
        device: cpu or cuda.
        repeats: number of timed calls of each.

    Returns:
        The seconds of each.
    """
    for function in functions:
        function()
    times = []
    for number in range(1, repeats + 1):
        progress(f"timed run {number} of {repeats}")
        times.append([seconds(function, device) for function in functions])
    return list(map(statistics.median, zip(*times)))


def measure(
    makers: Sequence[Callable[[], Work]], device: str, repeats: int, result: Callable[[Work, float], R]
) -> list[R]:
    """Build, prepare and time works. On a CPU they take turns; on a GPU, whose memory one may fill, each is alone.

    Args:
        makers: build the works.
        device: cpu or cuda.
        repeats: number of runs of each.
        result: called with each work, while it is there, and the median seconds of its runs.

    Returns:
        The results, in order.
    """
    found: list[R] = []
    groups = [[make] for make in makers] if is_gpu(device) else [makers]
    for group in groups:
        works = [make() for make in group]
        for work in works:
            work.prepare()
        times = interleaved_medians([work.run for work in works], device, repeats)
        found += map(result, works, times)
        del works, work
        release(device)
    return found


def progress(text: str) -> None:
    """Say on standard error what is measured now."""
    print(text, file=sys.stderr, flush=True)
