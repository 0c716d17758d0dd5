"""The two passes over blocks as CUDA graphs: one launch each way per block, instead of dozens per step and layer.

Before a replay, everything that it reads, weights too, is copied to tensors of the graphs' own, so that it does not
matter where torch and the optimizer keep things.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fb_fairseq.ops.captures import Captured
from fb_fairseq.ops.cuda_graphs import CudaGraph, current_device, reusable_memory
from fb_fairseq.ops.feedback.loop import Loop
from fb_fairseq.ops.feedback.passes import Passes, passes_of
from fb_fairseq.ops.feedback.types import BlockInputs
from fb_fairseq.ops.tensor_trees import cloned, copy_all, tensors


class CapturedPasses(Captured, Passes):
    """The two passes over blocks of the same shapes, captured.

    A block holds the graph from its forward to its backward pass, because its activations are in the graph's memory.

    Attributes:
        passes: what was captured.
        own_inputs, own: the inputs that the graphs read, and the tensors among them.
        d_out_TBD: the gradient that the backward graph reads.
        forward_graph, backward_graph: the graphs.
    """

    @reusable_memory()
    def __init__(self, loop: Loop, inputs: BlockInputs, needs_backward: bool):
        super().__init__(loop, needs_backward)
        self.passes = passes_of(loop, needs_backward)  # (whose buffers are the graphs')
        self._context: Callable[[], Any | None] = lambda: None  # see ``held_by``
        self.own_inputs = pytree.tree_map_only(Tensor, contiguous_like, inputs)
        self.own = tensors(self.own_inputs)
        copy_all(zip(self.own, tensors(inputs)))
        if needs_backward:
            self.d_out_TBD = torch.zeros_like(self.own_inputs.x_TBD)
        # Libraries set themselves up, and kernels are compiled, in a first call, which must not be captured.
        passes = self.passes
        passes.forward(self.own_inputs)
        if needs_backward:
            passes.backward(self.d_out_TBD)
            passes.free()  # frees as much memory as the captured passes will take
        with current_device(inputs.x_TBD.device):
            self.forward_graph = CudaGraph(lambda: passes.forward(self.own_inputs))
            if needs_backward:
                self.backward_graph = CudaGraph(lambda: passes.backward(self.d_out_TBD), before=self.forward_graph)

    def held_by(self, context: Callable[[], Any | None]) -> None:
        """See ``Passes.held_by``."""
        self._context = context

    def is_free(self) -> bool:
        """Whether no block waits for its backward pass in this graph's memory."""
        context = self._context()
        if context is None:
            return True
        try:
            _ = context.saved_tensors
        except RuntimeError:  # its backward pass is done, or would be refused
            return True
        return False

    def free(self) -> None:
        """See ``Passes.free``; the graphs' memory stays."""

    def forward(self, inputs: BlockInputs):
        """Replay the forward pass; see ``Passes.forward``."""
        copy_all(zip(self.own, tensors(inputs)))
        self.forward_graph.replay()
        return cloned(self.forward_graph.result)

    def backward(self, d_out_TBD: Tensor):
        """Replay the backward pass; see ``Passes.backward``."""
        self.d_out_TBD.copy_(d_out_TBD)
        self.backward_graph.replay()
        return cloned(self.backward_graph.result)


def contiguous_like(x: Tensor) -> Tensor:
    """A new tensor of the same shape and type, contiguous."""
    return torch.empty_like(x, memory_format=torch.contiguous_format)
