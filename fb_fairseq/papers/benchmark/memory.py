"""The memory that calls take, and the largest batch that fits."""

import gc
import math
import os
from collections.abc import Callable

import torch

from fb_fairseq.ops.buffers import POOL, Buffers
from fb_fairseq.papers.benchmark.work import Work, is_gpu, release, synchronize

SILENT = "9"  # torch's profiler otherwise writes several lines to stderr


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
    gc.collect()  # what is left of earlier calls would go during this one; its buffers would serve it, uncounted
    if is_gpu(device):
        synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        function()
        synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    POOL.release()
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
