"""Functions that measure the time and memory of a call, and print the results."""

import gc
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from fb_fairseq.ops.buffers import Buffers, release_free
from fb_fairseq.ops.feedback.loops import GRAPHS

R = TypeVar("R")
SILENT = "9"  # torch's profiler otherwise writes several lines to stderr


def is_gpu(device: str) -> bool:
    """Whether a device is a GPU."""
    return device.startswith("cuda")


def synchronize(device: str) -> None:
    """Wait for the work that is left running on a GPU."""
    if is_gpu(device):
        torch.cuda.synchronize(device)


def seconds(function: Callable, device: str) -> float:
    """Wall-clock time of a call, including the work that it leaves running on the GPU."""
    synchronize(device)
    start = time.perf_counter()
    function()
    synchronize(device)
    return time.perf_counter() - start


def progress(text: str) -> None:
    """Say on standard error what is measured now."""
    print(text, file=sys.stderr, flush=True)


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


class Work(NamedTuple):
    """Training or decoding with one model.

    Attributes:
        prepare: fills the memory; on a GPU also runs until graphs are captured.
        run: what is timed.
        words: number of words, or of an agent's frames, that a run processes.
        model: of a training step: its parameters get gradients.
        forward: of a training step: its forward pass, from which the output comes back.
        state: tells the bytes of the memory: of what is carried into a training step, or of a decoder's.
    """

    prepare: Callable[[], None]
    run: Callable[[], None]
    words: int
    model: torch.nn.Module | None = None
    forward: Callable[[], Tensor] | None = None
    state: Callable[[], int] = int


def repeated(function: Callable[[], object], device: str, times: int = 0) -> Callable[[], None]:
    """A function that makes so many calls; on a GPU at least as many as it takes to capture a graph."""
    if is_gpu(device):
        times = max(times, GRAPHS.capture_at + 1)

    def loop() -> None:
        for _ in range(times):
            function()

    return loop


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


def release(device: str) -> None:
    """Free what models that are gone have left in memory."""
    gc.collect()
    if is_gpu(device):
        torch.cuda.empty_cache()


def saved_bytes(function: Callable, model: torch.nn.Module) -> int:
    """Bytes that a forward pass keeps for its backward pass.

    Args:
        function: the forward pass, which returns its output.
        model: its parameters do not count.
    """
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    saved = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    gc.collect()  # what is left of the calls before does not go meanwhile
    before = Buffers.in_use
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = function()  # kept alive until all is counted, so that no address is used twice
    buffers = Buffers.in_use - before
    del result
    return sum(saved.values()) + buffers


def peak_bytes(function: Callable, device: str) -> int:
    """The most bytes that tensors occupy at the same time during a call, beyond those that they occupy before it."""
    if is_gpu(device):
        synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        function()
        synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    release_free()
    os.environ.setdefault("KINETO_LOG_LEVEL", SILENT)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        function()
    allocations = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    current = peak = 0
    for event in sorted(allocations, key=lambda event: event.start_ns()):
        current += event.nbytes()  # negative where memory is freed
        peak = max(peak, current)
    return peak


def work_bytes(make: Callable[[], Work], device: str) -> float:
    """The most bytes that tensors occupy at once: parameters, gradients, state, and what is computed for a moment;
    infinity if a GPU has not enough memory.

    Args:
        make: builds what is measured.
        device: cpu or cuda.
    """

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


def largest_batch(bytes_of: Callable[[int], float], limit: float, start: int) -> int:
    """The largest batch that fits, if larger ones never take less. The search doubles, then halves.

    Args:
        bytes_of: measures what a batch takes.
        limit: bytes that there are.
        start: the batch to begin with.

    Returns:
        The batch; 0 if not even 1 fits.
    """
    fits, too_large, batch = 0, 0, start
    while not too_large or too_large - fits > 1:
        if bytes_of(batch) <= limit:
            fits = batch
        else:
            too_large = batch
        batch = (fits + too_large) // 2 if too_large else 2 * fits
    return fits


def table(head: list[str], rows: list[list[str | float]]) -> None:
    """Print rows below a head. The first column is aligned to the left, the others to the right."""

    def text(x: str | float) -> str:
        if isinstance(x, str):
            return x
        return f"{x:,.3g}" if x < 100 else f"{x:,.0f}"

    cells = [head] + [[text(x) for x in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells)]
    for first, *others in cells:
        print("  ".join([first.ljust(widths[0])] + [cell.rjust(w) for cell, w in zip(others, widths[1:])]))
