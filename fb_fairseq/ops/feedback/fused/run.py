"""The two passes over a block with fused kernels."""

from fb_fairseq.ops.feedback.fast.block import BlockInputs
from fb_fairseq.ops.feedback.fast.loop import BlockRun
from fb_fairseq.ops.feedback.fused.backward import FusedBackward
from fb_fairseq.ops.feedback.fused.forward import FusedBlock


class FusedRun(BlockRun):
    """The two passes over a block, kernel by kernel."""

    backward_class = FusedBackward

    def make_block(self, inputs: BlockInputs, threads: int) -> FusedBlock:
        """See ``BlockRun.make_block``."""
        return FusedBlock(inputs)
