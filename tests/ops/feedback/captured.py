"""Captured blocks on a CPU, where ``RecordedGraph`` stands in for CUDA graphs."""

from fb_fairseq.ops.feedback.autograd import run_block_with
from fb_fairseq.ops.feedback.cuda_graphs import passes
from fb_fairseq.ops.feedback.cuda_graphs.blocks import BlockGraphs
from fb_fairseq.ops.feedback.loops import LOOPS
from tests.ops.feedback.cases import Case
from tests.ops.recorded_graph import capture_on_cpu

CAPTURE_AT = 3


def graphs_on_cpu(monkeypatch) -> BlockGraphs:
    """Graphs that work on a CPU, of blocks that come ``CAPTURE_AT`` times."""
    capture_on_cpu(monkeypatch, passes, BlockGraphs, CAPTURE_AT)
    return BlockGraphs(LOOPS["reference"])


class GraphLoop:
    """A function that runs blocks by a loop with these graphs. (On a CPU there are no kernels: torch's operations are
    captured.)

    Attributes:
        passes: the last block's.
        captured: whether it ran as a graph.
    """

    def __init__(self, graphs: BlockGraphs, loop=LOOPS["triton"]):
        self.graphs, self.loop = graphs, loop
        self.passes, self.captured = None, False

    def __call__(self, given):
        return run_block_with(self.passes_for, given)

    def passes_for(self, inputs, needs_backward):
        """The passes of a block, which are kept."""
        self.passes = self.graphs.passes_for(self.loop, inputs, needs_backward)
        self.captured = isinstance(self.passes, passes.CapturedPasses)
        return self.passes

    @property
    def captured_loop(self):
        """Whose operations are in the last block's graph: the given loop, or the reference."""
        return self.passes.passes.loop


def small(**changes):
    """A case of two layers with shared projections."""
    return Case(
        2, adaptive_span=False, decoder_layers=2, memory_composition="weighted", memory_projections="shared", **changes
    )
