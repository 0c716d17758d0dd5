"""The two passes over a block with Triton kernels."""

from fb_fairseq.ops.feedback.torch.block import BlockInputs
from fb_fairseq.ops.feedback.torch.loop import BlockRun
from fb_fairseq.ops.feedback.triton.backward import TritonBackward
from fb_fairseq.ops.feedback.triton.forward import TritonBlock


class TritonRun(BlockRun):
    """The two passes over a block, kernel by kernel."""

    backward_class = TritonBackward

    def make_block(self, inputs: BlockInputs, threads: int) -> TritonBlock:
        """See ``BlockRun.make_block``."""
        return TritonBlock(inputs)
