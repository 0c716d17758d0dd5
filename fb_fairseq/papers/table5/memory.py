"""The bytes that training or inference takes, and the largest batch that fits."""

import gc
import math
from collections.abc import Callable

import torch

from fb_fairseq.papers.benchmark.measure import peak_bytes
from fb_fairseq.papers.table5.task import Work

FASTEST_GROWTH = 8  # a batch is at most so many times larger than the largest that is known to fit


def work_bytes(make: Callable[[], Work], device: str) -> float:
    """The most bytes that tensors occupy at once: parameters, gradients, state, and what is computed for a moment;
    infinity if a GPU has not enough memory."""

    def whole() -> None:
        work = make()
        work.prepare()
        work.run()

    gc.collect()
    try:
        return peak_bytes(whole, device)
    except torch.cuda.OutOfMemoryError:
        return math.inf
    finally:
        release(device)


def release(device: str) -> None:
    """Free what models that are gone have left in memory."""
    gc.collect()
    if device.startswith("cuda"):
        torch.cuda.empty_cache()


def largest_batch(bytes_of: Callable[[int], float], limit: float, start: int) -> int:
    """The largest batch that takes at most ``limit`` bytes, if larger batches never take less; 0 if none does. Bytes
    grow about linearly, so the line through two batches says where to look, from ``start`` on; where it leads nowhere,
    the middle of what is left. Ends when a batch fits and the next does not, both measured."""
    fits, too_large = 0, math.inf
    measured: dict[int, float] = {}
    batch, halve = start, False
    while too_large - fits > 1:
        measured[batch] = bytes_of(batch)
        if measured[batch] <= limit:
            moved, fits = batch - fits, batch
        else:
            moved, too_large = too_large - batch, batch
        highest = too_large - 1 if too_large < math.inf else FASTEST_GROWTH * fits
        # After a small move (bytes may grow in steps), every second one goes to the middle.
        halve = moved <= 2 and not halve
        if halve:
            batch = (fits + 1 + (highest if too_large < math.inf else 2 * fits)) // 2
        else:
            batch = on_line(measured, limit)
        batch = min(max(batch, fits + 1), highest)
    return fits


def on_line(measured: dict[int, float], limit: float) -> int:
    """The batch that takes ``limit`` bytes, on the line through the two measured batches that come closest to it."""
    finite = [(batch, size) for batch, size in measured.items() if size < math.inf]
    near = sorted(finite, key=lambda point: abs(point[1] - limit))[:2]
    if len(near) < 2 or near[0][1] == near[1][1]:
        return 2 * max(measured) if not finite or near[0][1] <= limit else min(measured) // 2
    (a, bytes_a), (b, bytes_b) = near
    return int(a + (limit - bytes_a) * (b - a) / (bytes_b - bytes_a))
