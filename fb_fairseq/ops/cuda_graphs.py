"""CUDA graphs: capture and replay. (``captures.py``: when one is captured, and which are kept.)"""

import functools
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, Optional

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fb_fairseq.ops.log import first_line, log_once

# Types of devices on which Triton's kernels run, and those with CUDA graphs. (Tests put a CPU in their place.)
KERNEL_DEVICES = GRAPH_DEVICES = ("cuda",)

_capturing_failed = False
# Objects that keep graphs: ``clear()`` frees them, those of decoding steps only where the calling thread has made them
# (others stay as long as their threads). No graph is used after a capture has failed.
owners_of_graphs: "weakref.WeakSet[Any]" = weakref.WeakSet()


def disable_capturing(error: Exception) -> None:
    """Run without graphs from now on, after a capture has failed: torch may not have cleaned up after it."""
    global _capturing_failed
    _capturing_failed = True
    log_once(f"CUDA graphs: capturing failed; from now on steps run operation by operation: {first_line(error)}")
    for owner in list(owners_of_graphs):
        owner.clear()


def can_capture(device: torch.device) -> bool:
    """Whether CUDA graphs are available on a device."""
    if device.type not in GRAPH_DEVICES:
        log_once("CUDA graphs need a GPU; blocks and steps run without")
        return False
    return not _capturing_failed


class CaptureError(RuntimeError):
    """Capturing a graph has failed."""


class CudaGraph:
    """A function's launches as a CUDA graph.

    A replay reads and writes the same memory as the capture: the function's inputs must be tensors that
    stay allocated, into which new values are copied.

    Args:
        function: without arguments. It must not wait for the GPU, and must have run before; capturing does not run it.
        before: a graph that is always replayed before this one, which may then reuse the memory that it has freed.

    Raises:
        CaptureError: capturing failed. No graph should be captured after that (``disable_capturing``).

    Attributes:
        result: what the function returned; each replay overwrites it.
    """

    def __init__(self, function: Callable[[], Any], before: Optional["CudaGraph"] = None):
        self.graph = torch.cuda.CUDAGraph()
        self._device = torch.cuda.current_device()
        pool = None if before is None else before.graph.pool()
        current = torch.cuda.current_stream()
        stream = capture_stream(self._device)
        try:
            # Only this thread's calls are captured: NCCL and data loaders have threads of their own.
            with torch.cuda.graph(self.graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
                self.result = function()
        except Exception as error:
            torch.cuda.set_stream(current)  # a failed capture leaves its own stream current
            with suppress(Exception):
                reset_generator(self._device)
            raise CaptureError(str(error)) from error
        for x in tensors(self.result):
            if x.is_floating_point():
                x.fill_(float("nan"))  # nothing has been computed yet: an empty graph would show now

    def replay(self) -> None:
        """Launch the graph."""
        with torch.cuda.device(self._device):
            self.graph.replay()


@functools.cache
def capture_stream(device: int) -> torch.cuda.Stream:
    """The stream on which graphs of a device are captured. (torch's own belongs to the device that was first used.)"""
    return torch.cuda.Stream(device)


def reset_generator(device: int) -> None:
    """Give a device's random numbers a state outside of captures: a failed capture may leave the generator in one, and
    then no dropout mask can be drawn.
    """
    generator = torch.cuda.default_generators[device]
    fresh = torch.Generator(torch.device("cuda", device))
    fresh.set_state(generator.get_state())
    generator.graphsafe_set_state(fresh.graphsafe_get_state())


def current_device(device: torch.device) -> AbstractContextManager:
    """Context in which a graph on a device is captured."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


@contextmanager
def reusable_memory() -> Iterator[None]:
    """Context for making a graph's own tensors: those made in inference mode cannot be written outside of it."""
    with torch.inference_mode(False), torch.no_grad():
        yield


def copy_all(pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Copy tensors into others of the same shapes, with one launch for all of a type. ``pairs``: (to, from)."""
    by_type: dict[torch.dtype, list[tuple[Tensor, Tensor]]] = {}
    for to, given in pairs:
        if given.is_contiguous() and given.dtype == to.dtype:
            by_type.setdefault(to.dtype, []).append((to, given))
        else:  # (one such tensor would make torch copy the others one by one, too)
            to.copy_(given)
    for same in by_type.values():
        torch._foreach_copy_(*map(list, zip(*same)))


def tensors(tree) -> list[Tensor]:
    """The tensors of a pytree, in order."""
    return [x for x in pytree.tree_leaves(tree) if torch.is_tensor(x)]


def modes_of_products() -> tuple[str, bool]:
    """torch's modes that decide how products are computed, and so what a graph does."""
    return torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled()


def cloned(tree):
    """A graph's result, safe from its next replay: all tensors are cloned. (Autograd may keep a gradient as it is.)"""
    clones = pytree.tree_map_only(Tensor, torch.empty_like, tree)
    copy_all(zip(tensors(clones), tensors(tree)))
    return clones
