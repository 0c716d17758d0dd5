"""What a function launches on a GPU, captured once and launched again as one."""

from typing import Any, Callable, Optional

import torch


class CudaGraph:
    """A function's launches as a CUDA graph.

    Replayed, they read and write the same memory as when they were captured: the function's inputs have to be tensors
    that stay, into which new values are copied.

    Args:
        function: without arguments; it must not wait for the GPU.
        before: a graph that is always replayed first: this one may use again what that one has freed.

    Attributes:
        result: what the function returned; each replay writes it anew.
    """

    def __init__(self, function: Callable[[], Any], before: Optional["CudaGraph"] = None):
        current, aside = torch.cuda.current_stream(), torch.cuda.Stream()
        aside.wait_stream(current)
        with torch.cuda.stream(aside):
            function()  # libraries set themselves up in a first call, which must not be captured
        current.wait_stream(aside)
        self.graph = torch.cuda.CUDAGraph()
        pool = None if before is None else before.graph.pool()
        # Only this thread's calls are captured: NCCL and data loaders have threads of their own.
        with torch.cuda.graph(self.graph, pool=pool, capture_error_mode="thread_local"):
            self.result = function()

    def replay(self) -> None:
        self.graph.replay()
