"""The fast step loop as CUDA graphs: a block is one launch each way, instead of some ten a step and layer.

A block is captured when its shapes have come some times. Before a replay all that it reads, weights too, is copied to
tensors of the graph's own, so that it does not matter where torch and the optimizer keep things. Where there is no
graph, the operations run one by one.
"""

from collections import Counter, OrderedDict
from functools import partial
from typing import Tuple

import torch
from torch.utils import _pytree as pytree

from fb_fairseq.ops.cuda_graph import CudaGraph
from fb_fairseq.ops.fallbacks import can_capture, log_once
from fb_fairseq.ops.feedback_fast import BlockInputs, BlockRun, feedback_block_fast

CAPTURE_AT = 3  # blocks of the same shapes: a stream's first ones, with growing memory, are not worth it
MAX_GRAPHS = 8
MAX_KEYS = 10_000


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
        run.forward(self.own_inputs)  # libraries set themselves up in a first call, which must not be captured
        self.forward_graph = CudaGraph(lambda: run.forward(self.own_inputs))
        if keep:
            self.d_out_TBD = torch.zeros_like(self.own_inputs.x_TBD)
            run.backward(self.d_out_TBD)
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
    """Graphs by the shapes they are for; of more than ``MAX_GRAPHS`` those that were not used for longest go."""

    def __init__(self):
        self.seen: Counter = Counter()
        self.runs: "OrderedDict[Tuple, GraphRun]" = OrderedDict()

    def choose(self, inputs: BlockInputs, keep: bool) -> BlockRun:
        """The graph for a block, or the operations one by one: on a CPU, where shapes are new, where the graph is held by
        a block whose backward pass is to come, and where capturing has failed."""
        if not can_capture(inputs.x_TBD.device):
            return BlockRun(keep)
        key = key_of(inputs, keep)
        run = self.runs.get(key)
        if run is None:
            run = self.capture(key, inputs, keep)
        if run is None or not run.is_free():
            return BlockRun(keep)
        self.runs.move_to_end(key)
        return run

    def capture(self, key: Tuple, inputs: BlockInputs, keep: bool):
        if len(self.seen) > MAX_KEYS:
            self.seen.clear()
        self.seen[key] += 1
        if self.seen[key] < CAPTURE_AT:
            return None
        if len(self.runs) >= MAX_GRAPHS:
            unused = [old for old, run in self.runs.items() if run.is_free()]
            if not unused:
                return None
            del self.runs[unused[0]]
        try:
            self.runs[key] = GraphRun(inputs, keep)
        except RuntimeError as error:  # out of memory too
            self.seen[key] = -1_000_000
            log_once(f"a block could not be captured as a CUDA graph and runs operation by operation: {error}")
        return self.runs.get(key)

    def clear(self) -> None:
        """Free the graphs and their memory."""
        self.runs.clear()
        self.seen.clear()


def tensors(tree) -> list:
    return [x for x in pytree.tree_flatten(tree)[0] if torch.is_tensor(x)]


def copies(tree):
    """The graph's next replay must not change what this one has given; autograd may keep a gradient as it is."""
    return pytree.tree_map(lambda x: x.clone() if torch.is_tensor(x) else x, tree)


def key_of(inputs: BlockInputs, keep: bool) -> Tuple:
    """All that a capture depends on but the values of tensors."""
    leaves, tree = pytree.tree_flatten(inputs)
    return (keep, str(tree), *((x.shape, x.dtype, x.device) if torch.is_tensor(x) else x for x in leaves))


GRAPHS = Graphs()
feedback_block_graph = partial(feedback_block_fast, choose_run=GRAPHS.choose)
