"""The torch loop: PyTorch's operations, with a backward pass written by hand."""

from fb_fairseq.ops.feedback.loop import Loop
from fb_fairseq.ops.feedback.torch.backward import run_tile
from fb_fairseq.ops.feedback.torch.forward import run_steps


class TorchLoop(Loop):
    """Runs everywhere, operation by operation; and where another loop does not run."""

    name = "torch"
    summary = "PyTorch's operations, with a backward pass written by hand"
    runs = "everywhere"

    def forward_steps(self, block, record, first, last, results=None) -> None:
        """See ``Loop.forward_steps``."""
        run_steps(block, record, first, last, results)

    def backward_tile(self, block, tile, d_out_TBD, d_x_TBD) -> None:
        """See ``Loop.backward_tile``."""
        run_tile(tile, d_out_TBD, d_x_TBD)
