"""The torch loop as CUDA graphs: one launch each way per block, instead of dozens per step and layer.

A block is captured once blocks of the same shapes have come often enough. Before a replay, everything that it reads,
weights too, is copied to tensors of the graph's own, so that it does not matter where torch and the optimizer keep
things. Blocks without a graph run operation by operation.
"""

from functools import partial
from typing import Callable, Optional, Tuple

import torch
from torch.utils import _pytree as pytree

from fb_fairseq.ops import fallbacks
from fb_fairseq.ops.cuda_graph import (
    CudaGraph,
    cloned,
    copy_all,
    current_device,
    modes_of_products,
    reusable_memory,
    tensors,
)
from fb_fairseq.ops.feedback.torch.block import BlockInputs
from fb_fairseq.ops.feedback.torch.loop import BlockRun
from fb_fairseq.ops.graph_cache import GraphCache, Limits

# The first blocks of a stream, whose memory still grows, have shapes of their own that are not worth a capture. Each
# graph holds the memory for a block's activations.
LIMITS = Limits(capture_at=10, graphs=4)


class GraphRun(BlockRun):
    """The two passes over blocks of the same shapes, captured.

    A block holds the graph from its forward to its backward pass, because its activations are in the graph's memory.

    Args:
        new_run: makes what is captured.
    """

    @reusable_memory()
    def __init__(self, inputs: BlockInputs, keep: bool, new_run: Callable[[bool], BlockRun] = BlockRun):
        super().__init__(keep)
        leaves, tree = pytree.tree_flatten(inputs)
        self.own = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in leaves if torch.is_tensor(x)]
        own = iter(self.own)
        self.own_inputs = pytree.tree_unflatten([next(own) if torch.is_tensor(x) else x for x in leaves], tree)
        self.run = run = new_run(keep)  # its buffers are the graphs'
        self._copy(inputs)
        if keep:
            self.d_out_TBD = torch.zeros_like(self.own_inputs.x_TBD)
        # Libraries set themselves up in a first call, which must not be captured.
        run.forward(self.own_inputs)
        if keep:
            run.backward(self.d_out_TBD)
            run.forget()  # frees as much memory as the captured passes will take
        with current_device(inputs.x_TBD.device):
            self.forward_graph = CudaGraph(lambda: run.forward(self.own_inputs))
            if keep:
                self.backward_graph = CudaGraph(lambda: run.backward(self.d_out_TBD), before=self.forward_graph)

    def _copy(self, inputs: BlockInputs) -> None:
        """Copy what a block reads to the graph's own tensors."""
        copy_all(zip(self.own, tensors(inputs)))

    def is_free(self) -> bool:
        """Whether no block waits for its backward pass in this graph's memory."""
        context = self.holder()
        if context is None:
            return True
        try:
            _ = context.saved_tensors
        except RuntimeError:  # its backward pass is done, or would be refused
            return True
        return False

    def forget(self) -> None:
        """See ``BlockRun.forget``; the graphs' memory stays."""

    def forward(self, inputs: BlockInputs):
        """Replay the forward pass; see ``BlockRun.forward``."""
        self._copy(inputs)
        self.forward_graph.replay()
        return cloned(self.forward_graph.result)

    def backward(self, d_out_TBD: torch.Tensor):
        """Replay the backward pass; see ``BlockRun.backward``."""
        self.d_out_TBD.copy_(d_out_TBD)
        self.backward_graph.replay()
        return cloned(self.backward_graph.result)


class BlockGraphs:
    """The graphs of blocks, by the shapes they are for.

    Attributes:
        cache: the graphs.
    """

    def __init__(self):
        self.cache: GraphCache[GraphRun] = GraphCache(lambda: LIMITS, is_held=lambda run: not run.is_free())
        fallbacks.owners_of_graphs.add(self)

    def find(
        self, inputs: BlockInputs, keep: bool, new_run: Callable[[bool], BlockRun] = BlockRun
    ) -> Tuple[Optional[GraphRun], Optional[str]]:
        """The graph for a block; or None, and why the block runs operation by operation.

        Args:
            new_run: see ``GraphRun``.
        """
        if not fallbacks.can_capture(inputs.x_TBD.device):
            return None, None  # which is logged already
        key, cache, reason = graph_key(inputs, keep), self.cache, None
        cache.count()
        run = cache.graphs.get(key)
        if run is None:
            run, reason = cache.capture(key, partial(GraphRun, inputs, keep, new_run))
        if run is not None and not run.is_free():
            run, reason = None, "the backward pass of another block still needs its graph"
        if run is not None:
            cache.use(key)
        return run, reason

    def clear(self) -> None:
        """Free the graphs and their memory."""
        self.cache.clear()


def graph_key(inputs: BlockInputs, keep: bool) -> Tuple:
    """Everything that a capture depends on, except the values of tensors."""
    leaves, tree = pytree.tree_flatten(inputs)
    return (
        keep,
        *modes_of_products(),
        str(tree),
        *((x.shape, x.dtype, x.device) if torch.is_tensor(x) else x for x in leaves),
    )
