"""Capture and replay of CUDA graphs."""

from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree


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
        CaptureError: capturing failed. No graph should be captured after that (``fallbacks.disable_capturing``).

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
        except Exception as error:
            torch.cuda.set_stream(current)  # a failed capture leaves its own stream current
            raise CaptureError(str(error)) from error

    def replay(self) -> None:
        """Launch the graph."""
        self.graph.replay()


@contextmanager
def reusable_memory() -> Iterator[None]:
    """Context in which a graph's own tensors are made. (In inference mode, only it could write to them.)"""
    with torch.inference_mode(False), torch.no_grad():
        yield


def copy_all(pairs: Iterable[Tuple[Tensor, Tensor]]) -> None:
    """Copy tensors into others of the same shapes, with one launch for all of a type.

    Args:
        pairs: (to, from).
    """
    by_type: Dict[torch.dtype, List[Tuple[Tensor, Tensor]]] = {}
    for to, given in pairs:
        if given.is_contiguous() and given.dtype == to.dtype:
            by_type.setdefault(to.dtype, []).append((to, given))
        else:  # (one such tensor would make torch copy the others one by one, too)
            to.copy_(given)
    for same in by_type.values():
        torch._foreach_copy_(*map(list, zip(*same)))


def cloned(tree):
    """A graph's result, safe from its next replay: all tensors are cloned. (Autograd may keep a gradient as it is.)"""
    leaves, structure = pytree.tree_flatten(tree)
    clones = [torch.empty_like(x) if torch.is_tensor(x) else x for x in leaves]
    copy_all((clone, x) for clone, x in zip(clones, leaves) if torch.is_tensor(x))
    return pytree.tree_unflatten(clones, structure)
