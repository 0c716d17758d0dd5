"""CUDA graphs: capture and replay. (``captures.py``: when, and which are kept; ``capturing.py``: where.)"""

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, Optional

import torch

from fb_fairseq.ops.tensor_trees import tensors


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
