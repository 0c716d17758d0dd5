"""Sums of the gradients in the Triton loop's backward pass: the torch loop's, of what its kernels have left.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

from typing import Tuple

from torch import Tensor

from fb_fairseq.ops.feedback.torch.gradients import BlockGradients
from fb_fairseq.ops.feedback.torch.tile import Tile, Workspace


class TritonGradients(BlockGradients):
    """All sums of a block."""

    def head_by_head(self, work: Workspace, weights_YGC: Tensor, vectors_YGE: Tensor) -> Tuple[Tensor, Tensor]:
        """See ``BlockGradients.head_by_head``: views, as the workspace lies in memory head by head."""
        return weights_YGC.transpose(0, 1), vectors_YGE.transpose(0, 1)

    def cross_weights(self, tile: Tile, l: int) -> Tuple[Tensor, Tensor]:
        """See ``BlockGradients.cross_weights``."""
        work, n = tile.work, tile.steps
        return work.cross_p[:n, l], work.dcs.whole[:n, l] * self.block.scale
