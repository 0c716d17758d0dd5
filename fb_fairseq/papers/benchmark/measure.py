"""Functions that measure the time and memory of a call, and print the results."""

import os
import sys
import time
from collections.abc import Callable, Sequence

import torch

from fb_fairseq.ops.buffers import Buffers, release_free

COPY_BYTES = 256 << 20  # far more than the caches of a CPU or GPU hold
COPY_REPEATS = 5
SILENT = "9"  # torch's profiler otherwise writes several lines to stderr


def seconds(function: Callable, device: str) -> float:
    """Wall-clock time of a call, including the work that it leaves running on the GPU."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    function()
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def progress(text: str = "") -> None:
    """Say on standard error what is measured now; on a terminal in a line that the next text overwrites."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
    elif text:
        print(text, file=sys.stderr, flush=True)


def interleaved_medians(functions: Sequence[Callable], device: str, repeats: int) -> list[float]:
    """Median time of each function in seconds, after a first call that is not counted. The functions take turns, so
    that other load on the machine slows down all of them alike."""
    for number, function in enumerate(functions, 1):
        progress(f"first call, {number} of {len(functions)}")
        function()
    times = []
    for number in range(1, repeats + 1):
        progress(f"timed run {number} of {repeats}")
        times.append([seconds(function, device) for function in functions])
    progress()
    return [sorted(column)[repeats // 2] for column in zip(*times)]


def copy_bandwidth(device: str) -> float:
    """Bytes per second that copying a large tensor reads and writes."""
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device=device).fill_(1)
    target = torch.empty_like(source)
    (time,) = interleaved_medians([lambda: target.copy_(source)], device, COPY_REPEATS)
    return 2 * source.numel() / time


def count_launches(function: Callable) -> int:
    """Number of kernels, copies and graphs that a call launches on the GPU."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        function()
        torch.cuda.synchronize()
    names = ("LaunchKernel", "GraphLaunch", "MemcpyAsync", "MemsetAsync")
    return sum(event.count for event in profile.key_averages() if any(name in event.key for name in names))


def saved_bytes(function: Callable, model: torch.nn.Module) -> int:
    """Bytes that the forward pass ``function`` keeps for its backward pass, without the parameters of ``model``."""
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    saved = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    before = Buffers.in_use
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = function()  # kept alive until all is counted, so that no address is used twice
    buffers = Buffers.in_use - before
    del result
    return sum(saved.values()) + buffers


def peak_bytes(function: Callable, device: str) -> int:
    """The most bytes that tensors occupy at the same time during a call, beyond those that they occupy before it."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        function()
        torch.cuda.synchronize(device)
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


def table(head: list[str], rows: list[list[str | float]]) -> None:
    """Print rows below a head. The first column is aligned to the left, the others to the right."""

    def text(x):
        return x if isinstance(x, str) else f"{x:,.3g}" if x < 100 else f"{x:,.0f}"

    cells = [head] + [[text(x) for x in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells)]
    for first, *others in cells:
        print("  ".join([first.ljust(widths[0])] + [cell.rjust(w) for cell, w in zip(others, widths[1:])]))
