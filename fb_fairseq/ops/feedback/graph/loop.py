"""The step loop that runs as CUDA graphs."""

from typing import Optional, Sequence, Tuple

import torch

from fb_fairseq.ops import fallbacks
from fb_fairseq.ops.feedback.decoding.stepper import Stepper
from fb_fairseq.ops.feedback.fast.block import BlockInputs
from fb_fairseq.ops.feedback.fast.loop import BlockLoop, BlockRun
from fb_fairseq.ops.feedback.graph import blocks
from fb_fairseq.ops.feedback.graph.blocks import BlockGraphs, GraphRun
from fb_fairseq.ops.feedback.graph.stepper import GraphStepper
from fb_fairseq.ops.feedback.step_loop import KERNELS


class GraphLoop(BlockLoop):
    """The fast loop as CUDA graphs.

    Attributes:
        graphs: those of blocks.
    """

    name = "graph"
    summary = "fast as CUDA graphs, for blocks and decoding steps whose shapes repeat"
    runs = "on a GPU; elsewhere fast runs"
    kernels = KERNELS

    def __init__(self):
        self.graphs = BlockGraphs()

    @property
    def devices(self) -> Tuple[str, ...]:
        """See ``StepLoop``."""
        return fallbacks.GRAPH_DEVICES

    @property
    def steps_on(self) -> Tuple[str, ...]:
        """See ``StepLoop``."""
        return fallbacks.GRAPH_DEVICES

    @property
    def warm_up_blocks(self) -> int:
        """See ``StepLoop``."""
        return blocks.LIMITS.capture_at

    def choose_run(self, inputs: BlockInputs, keep: bool) -> BlockRun:
        """See ``BlockLoop.choose_run``."""
        run, reason = self.graphs.find(inputs, keep)
        if reason is not None:
            fallbacks.log_once(f"--step-loop graph: a block runs operation by operation, because {reason}")
        return BlockRun(keep) if run is None else run

    def new_run(self, inputs: BlockInputs, keep: bool, kernel: Optional[str] = None) -> Optional[BlockRun]:
        """See ``BlockLoop.new_run``."""
        return self.graphs.find(inputs if kernel is None else inputs.with_kernel(kernel), keep)[0]

    def trial_kernels(self, device: torch.device) -> Sequence[str]:
        """See ``BlockLoop.trial_kernels``."""
        if not fallbacks.can_capture(device):
            return ()
        return KERNELS if fallbacks.have_kernels(device) else KERNELS[:1]

    def trial_run(self, inputs: BlockInputs, keep: bool) -> BlockRun:
        """See ``BlockLoop.trial_run``.

        Raises:
            CaptureError: capturing has failed, now or before.
        """
        with fallbacks.trying_to_capture(inputs.x_TBD.device):
            return GraphRun(inputs, keep)

    def new_stepper(self, asked: bool = True) -> Stepper:
        """See ``StepLoop.new_stepper``."""
        return GraphStepper(asked)
