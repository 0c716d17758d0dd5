"""What a function launches on a GPU, captured once and launched again as one."""

from typing import Any, Callable, Optional

import torch
from torch.utils import _pytree as pytree


class CudaGraph:
    """A function's launches as a CUDA graph.

    Replayed, they read and write the same memory as when they were captured: the function's inputs have to be tensors
    that stay, into which new values are copied.

    Args:
        function: without arguments; it must not wait for the GPU, and it must have run before. Now it does not run.
        before: a graph that is always replayed first: this one may use again what that one has freed.

    Raises:
        RuntimeError: capturing failed. Graphs should then be left alone (``fallbacks.stop_capturing``).

    Attributes:
        result: what the function returned; each replay writes it anew.
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
            torch.cuda.set_stream(current)  # which a capture that breaks off leaves behind
            raise

    def replay(self) -> None:
        self.graph.replay()


def copies(tree):
    """The graph's next replay must not change what this one has given; autograd may keep a gradient as it is."""
    return pytree.tree_map(lambda x: x.clone() if torch.is_tensor(x) else x, tree)
