"""Capture and replay of CUDA graphs."""

from typing import Any, Callable, Optional

import torch
from torch.utils import _pytree as pytree


class CudaGraph:
    """A function's launches as a CUDA graph.

    A replay reads and writes the same memory as the capture: the function's inputs must be tensors that
    stay allocated, into which new values are copied.

    Args:
        function: without arguments. It must not wait for the GPU, and must have run before; capturing does not run it.
        before: a graph that is always replayed before this one, which may then reuse the memory that it has freed.

    Raises:
        RuntimeError: capturing failed. No graph should be captured after that (``fallbacks.disable_capturing``).

    Attributes:
        result: what the function returned; each replay overwrites it.
    """

    def __init__(self, function: Callable[[], Any], before: Optional["CudaGraph"] = None):
        self.graph = torch.cuda.CUDAGraph()
        pool = None if before is None else before.graph.pool()
        current = torch.cuda.current_stream()
        # Only this thread's calls are captured: NCCL and data loaders have threads of their own.
        try:
            with torch.cuda.graph(self.graph, pool=pool, capture_error_mode="thread_local"):
                self.result = function()
        except RuntimeError:
            torch.cuda.set_stream(current)  # a failed capture leaves its own stream current
            raise

    def replay(self) -> None:
        """Launch the graph."""
        self.graph.replay()


def cloned(tree):
    """A graph's result, safe from its next replay: all tensors are cloned. (Autograd may keep a gradient as it is.)"""
    return pytree.tree_map(lambda x: x.clone() if torch.is_tensor(x) else x, tree)
