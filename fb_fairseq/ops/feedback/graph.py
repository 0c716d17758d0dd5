"""The fast step loop as CUDA graphs: a block is one launch each way, instead of some ten a step and layer.

A block is captured when its shapes come often. Before a replay all that it reads, weights too, is copied to
tensors of the graph's own, so that it does not matter where torch and the optimizer keep things. Where there is no
graph, the operations run one by one.
"""

from collections import Counter
from functools import partial
from typing import Dict, Optional, Tuple

import torch
from torch.utils import _pytree as pytree

from fb_fairseq.ops.cuda_graph import CudaGraph, copies
from fb_fairseq.ops.fallbacks import can_capture, stop_capturing
from fb_fairseq.ops.feedback.fast import BlockInputs, BlockRun, feedback_block_fast

WHILE = 1000  # blocks
CAPTURE_AT = (
    10  # blocks of the same shapes in a while: the first ones of streams, with growing memory, are not worth it
)
MAX_GRAPHS = 4  # each holds a block's activations


class GraphRun(BlockRun):
    """The two passes over blocks of the same shapes, captured.

    A block holds the graph from its forward to its backward pass, because its activations lie in the graph's memory.
    """

    def __init__(self, inputs: BlockInputs, keep: bool):
        super().__init__(keep)
        leaves, tree = pytree.tree_flatten(inputs)
        self.own = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in leaves if torch.is_tensor(x)]
        own = iter(self.own)
        self.own_inputs = pytree.tree_unflatten([next(own) if torch.is_tensor(x) else x for x in leaves], tree)
        self.holder = lambda: None
        self.run = run = BlockRun(keep)  # its buffers are the graphs'
        self.copy(inputs)
        if keep:
            self.d_out_TBD = torch.zeros_like(self.own_inputs.x_TBD)
        # Libraries set themselves up in a first call, which must not be captured.
        run.forward(self.own_inputs)
        if keep:
            run.backward(self.d_out_TBD)
            run.block = run.record = None  # as much memory as the captured ones will take
        self.forward_graph = CudaGraph(lambda: run.forward(self.own_inputs))
        if keep:
            self.backward_graph = CudaGraph(lambda: run.backward(self.d_out_TBD), before=self.forward_graph)

    def copy(self, inputs: BlockInputs) -> None:
        by_type = {}
        for own, new in zip(self.own, tensors(inputs)):
            by_type.setdefault(own.dtype, []).append((own, new))
        for pairs in by_type.values():  # a launch each
            torch._foreach_copy_(*map(list, zip(*pairs)))

    def is_free(self) -> bool:
        block = self.holder()
        if block is None:
            return True
        try:
            block.saved_tensors
        except RuntimeError:  # its backward pass is done (or would be refused)
            return True
        return False

    def forward(self, inputs: BlockInputs):
        self.copy(inputs)
        self.forward_graph.replay()
        return copies(self.forward_graph.result)

    def backward(self, d_out_TBD: torch.Tensor):
        self.d_out_TBD.copy_(d_out_TBD)
        self.backward_graph.replay()
        return copies(self.backward_graph.result)


class Graphs:
    """Graphs by the shapes they are for, ``MAX_GRAPHS`` at most. One makes room only when it was not used for a while:
    shapes that are too many take turns in no order, and what is captured anew each time costs more than it saves."""

    def __init__(self):
        self.blocks = 0
        self.seen: Counter = Counter()  # in this while
        self.runs: Dict[Tuple, GraphRun] = {}
        self.used: Dict[Tuple, int] = {}  # when

    def choose(self, inputs: BlockInputs, keep: bool) -> BlockRun:
        """The graph for a block, or the operations one by one: on a CPU, where shapes are new or rare, where the graph is
        held by a block whose backward pass is to come, and after a capture has failed."""
        if not can_capture(inputs.x_TBD.device):
            return BlockRun(keep)
        self.blocks += 1
        if self.blocks % WHILE == 0:
            self.seen.clear()
        key = key_of(inputs, keep)
        run = self.runs.get(key) or self.capture(key, inputs, keep)
        if run is None or not run.is_free():
            return BlockRun(keep)
        self.used[key] = self.blocks
        return run

    def capture(self, key: Tuple, inputs: BlockInputs, keep: bool) -> Optional[GraphRun]:
        self.seen[key] += 1
        if self.seen[key] < CAPTURE_AT or not self.make_room():
            return None
        try:
            self.runs[key] = GraphRun(inputs, keep)
        except RuntimeError as error:  # out of memory too
            stop_capturing(error)
        return self.runs.get(key)

    def make_room(self) -> bool:
        for key in [key for key in self.runs if self.used[key] + WHILE < self.blocks and self.runs[key].is_free()]:
            del self.runs[key], self.used[key]
        return len(self.runs) < MAX_GRAPHS

    def clear(self) -> None:
        """Free the graphs and their memory."""
        self.runs.clear()
        self.used.clear()
        self.seen.clear()


def tensors(tree) -> list:
    return [x for x in pytree.tree_flatten(tree)[0] if torch.is_tensor(x)]


def key_of(inputs: BlockInputs, keep: bool) -> Tuple:
    """All that a capture depends on but the values of tensors."""
    leaves, tree = pytree.tree_flatten(inputs)
    modes = torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled()
    return (keep, *modes, str(tree), *((x.shape, x.dtype, x.device) if torch.is_tensor(x) else x for x in leaves))


GRAPHS = Graphs()
feedback_block_graph = partial(feedback_block_fast, choose_run=GRAPHS.choose)
