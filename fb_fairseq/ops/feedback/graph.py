"""The fast step loop as CUDA graphs: one launch each way per block, instead of dozens per step and layer.

A block is captured once blocks of the same shapes have come often enough. Before a replay, everything that it reads,
weights too, is copied to tensors of the graph's own, so that it does not matter where torch and the optimizer keep
things. Blocks without a graph run operation by operation.
"""

from collections import Counter
from functools import partial
from typing import Dict, Optional, Tuple

import torch
from torch.utils import _pytree as pytree

from fb_fairseq.ops.cuda_graph import (
    CudaGraph,
    cloned,
    copy_all,
    current_device,
    modes_of_products,
    reusable_memory,
    tensors,
)
from fb_fairseq.ops.fallbacks import can_capture, disable_capturing, owners_of_graphs
from fb_fairseq.ops.feedback.block import BlockInputs
from fb_fairseq.ops.feedback.fast import BlockRun, feedback_block_fast

# Blocks are counted by shape in windows of this many blocks; a graph that was not used for as long may be replaced.
CAPTURE_WINDOW_BLOCKS = 1000
# Shapes are captured when this many blocks of a window have had them. The first blocks of a stream, whose memory still
# grows, have shapes of their own that are not worth a capture.
CAPTURE_AT = 10
# Each graph holds the memory for a block's activations.
MAX_GRAPHS = 4


class GraphRun(BlockRun):
    """The two passes over blocks of the same shapes, captured.

    A block holds the graph from its forward to its backward pass, because its activations are in the graph's memory.
    """

    @reusable_memory()
    def __init__(self, inputs: BlockInputs, keep: bool):
        super().__init__(keep)
        leaves, tree = pytree.tree_flatten(inputs)
        self.own = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in leaves if torch.is_tensor(x)]
        own = iter(self.own)
        self.own_inputs = pytree.tree_unflatten([next(own) if torch.is_tensor(x) else x for x in leaves], tree)
        self.run = run = BlockRun(keep)  # its buffers are the graphs'
        self._copy(inputs)
        if keep:
            self.d_out_TBD = torch.zeros_like(self.own_inputs.x_TBD)
        # Libraries set themselves up in a first call, which must not be captured.
        run.forward(self.own_inputs)
        if keep:
            run.backward(self.d_out_TBD)
            run.block = run.record = None  # frees as much memory as the captured passes will take
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


class Graphs:
    """At most ``MAX_GRAPHS`` graphs, by the shapes they are for.

    A graph is replaced only if it was not used for a window of blocks: if more than ``MAX_GRAPHS`` shapes
    alternate, capturing graphs again and again would cost more than it saves.
    """

    def __init__(self):
        self.blocks = 0
        self.seen: Counter = Counter()  # blocks by shapes, in this window
        self.runs: Dict[Tuple, GraphRun] = {}
        self.last_used: Dict[Tuple, int] = {}  # number of the block
        owners_of_graphs.add(self)

    def choose(self, inputs: BlockInputs, keep: bool) -> BlockRun:
        """The graph for a block; or a run operation by operation.

        The latter on a CPU, where shapes are new or rare, where another block's backward pass still needs the graph,
        and after a capture has failed.
        """
        if not can_capture(inputs.x_TBD.device):
            return BlockRun(keep)
        self.blocks += 1
        if self.blocks % CAPTURE_WINDOW_BLOCKS == 0:
            self.seen.clear()
        key = graph_key(inputs, keep)
        run = self.runs.get(key) or self._capture(key, inputs, keep)
        if run is None or not run.is_free():
            return BlockRun(keep)
        self.last_used[key] = self.blocks
        return run

    def _capture(self, key: Tuple, inputs: BlockInputs, keep: bool) -> Optional[GraphRun]:
        """Capture a block if its shapes have come often enough and there is room."""
        self.seen[key] += 1
        if self.seen[key] < CAPTURE_AT or not self._make_room():
            return None
        try:
            self.runs[key] = GraphRun(inputs, keep)
        except Exception as error:  # out of memory; a kernel that does not compile
            disable_capturing(error)
        return self.runs.get(key)

    def _make_room(self) -> bool:
        """Drop graphs that were not used for a window. Returns whether there is room for another one."""
        oldest = self.blocks - CAPTURE_WINDOW_BLOCKS
        for key in [key for key, run in self.runs.items() if self.last_used[key] < oldest and run.is_free()]:
            del self.runs[key], self.last_used[key]
        return len(self.runs) < MAX_GRAPHS

    def clear(self) -> None:
        """Free the graphs and their memory."""
        self.runs.clear()
        self.last_used.clear()
        self.seen.clear()


def graph_key(inputs: BlockInputs, keep: bool) -> Tuple:
    """Everything that a capture depends on, except the values of tensors."""
    leaves, tree = pytree.tree_flatten(inputs)
    return (
        keep,
        *modes_of_products(),
        str(tree),
        *((x.shape, x.dtype, x.device) if torch.is_tensor(x) else x for x in leaves),
    )


GRAPHS = Graphs()
feedback_block_graph = partial(feedback_block_fast, choose_run=GRAPHS.choose)
