"""Blocks as CUDA graphs: one launch each way per block, instead of dozens per step and layer.

A block is captured once blocks of the same shapes have come often enough. Those in between, on a memory that still
grows from block to block, are not: each of their shapes comes once per epoch. Before a replay, everything that it
reads, weights too, is copied to tensors of the graph's own, so that it does not matter where torch and the optimizer
keep things.

Before a graph of kernels is used, its block is computed twice: by the graph, and by torch's operations. Kernels that
fail or compute something else are named once in the log and not used; then torch's operations are captured.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fb_fairseq.ops import cuda_graphs
from fb_fairseq.ops.agreement import in_fp32
from fb_fairseq.ops.captures import Captured, Captures
from fb_fairseq.ops.cuda_graphs import (
    CudaGraph,
    cloned,
    copy_all,
    current_device,
    modes_of_products,
    reusable_memory,
    tensors,
)
from fb_fairseq.ops.feedback.loop import Loop
from fb_fairseq.ops.feedback.passes import Passes, passes_of
from fb_fairseq.ops.feedback.types import BlockInputs, block_sizes

CAPTURE_FULL_AT = 2  # blocks on a full memory, which streams have again and again


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
        leaves, tree = pytree.tree_flatten(inputs)
        self.own = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in leaves if torch.is_tensor(x)]
        own = iter(self.own)
        self.own_inputs = pytree.tree_unflatten([next(own) if torch.is_tensor(x) else x for x in leaves], tree)
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


class BlockGraphs(Captures):
    """The captured blocks, by the shapes they are for. Each holds the memory for a block's activations. Blocks that
    follow each other come again and again; of others, such as sentences, many shapes are too rare for a capture.

    ``reference``: what runs where kernels do not.
    """

    capture_at, kept = 10, 4

    def __init__(self, reference: Loop):
        super().__init__()
        self._reference = reference

    def passes_for(self, loop: Loop, inputs: BlockInputs, needs_backward: bool) -> Passes:
        """The passes that run a block: captured ones; or where shapes are new or rare, kernel by kernel."""
        key = setting(loop, inputs, needs_backward)
        if key not in self.problems:
            problem = loop.unsupported(inputs)
            if problem is not None:
                self.refuse(key, problem)
        is_right = partial(self._is_right, loop, inputs, needs_backward, key)
        carried = inputs.memory_KCBD.shape[1]
        if cuda_graphs.can_capture(inputs.x_TBD.device) and carried in (0, inputs.options.span):
            captured = self.find(
                graph_key(inputs, needs_backward),
                key,
                lambda kernels: CapturedPasses(loop if kernels else self._reference, inputs, needs_backward),
                is_right,
                min(CAPTURE_FULL_AT, self.capture_at) if carried else None,
            )
            if captured is not None:
                return captured
        if key not in self.problems:
            is_right(passes_of(loop, needs_backward))
        right = self.problems.get(key, "not compared yet") is None
        return passes_of(loop if right else self._reference, needs_backward)

    def _is_right(self, loop: Loop, inputs: BlockInputs, needs_backward: bool, key: tuple, passes) -> bool | None:
        """Compare the results of passes with those of torch's operations, all gradients too; see ``agrees``."""
        reference = passes_of(self._reference, needs_backward)
        run = partial(results, passes, inputs, needs_backward)
        expected = partial(results, reference, inputs, needs_backward)

        def exact() -> list[Any]:
            return results(reference, in_fp32(inputs)._replace(dtype=torch.float32), needs_backward)

        half = inputs.dtype.itemsize < torch.float32.itemsize
        return self.agrees(key, run, expected, inputs.dtype, exact if half else None)


def results(passes, inputs: BlockInputs, needs_backward: bool) -> list[Any]:
    """A block's results and gradients, for a gradient of the outputs that is made up."""
    x_TBD = inputs.x_TBD
    groups: list[Any] = [passes.forward(inputs)]
    if needs_backward:
        d_out_TBD = torch.arange(x_TBD.numel(), device=x_TBD.device).cos().view(x_TBD.shape)
        groups.append(passes.backward(d_out_TBD.to(x_TBD.dtype)))
        passes.free()
    return groups


def setting(loop: Loop, inputs: BlockInputs, needs_backward: bool) -> tuple:
    """Everything that kernels depend on, but for the lengths of blocks and memories and the number of streams."""
    s = block_sizes(inputs)
    kinds = [mask is not None for mask in inputs.dropouts] + [bool(inputs.encoder), inputs.age_TB is not None]
    options = inputs.options._replace(span=0)
    types = inputs.dtype, inputs.x_TBD.dtype, inputs.x_TBD.device, *modes_of_products()
    return (loop.name, needs_backward, s.D, s.L, s.E, s.F, s.K, s.I, options, *types, *kinds)


def graph_key(inputs: BlockInputs, needs_backward: bool) -> tuple:
    """Everything that a capture depends on, except the values of tensors."""
    leaves, tree = pytree.tree_flatten(inputs)
    return (
        needs_backward,
        *modes_of_products(),
        str(tree),
        *((x.shape, x.dtype, x.device) if torch.is_tensor(x) else x for x in leaves),
    )
