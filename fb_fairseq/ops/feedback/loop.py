"""A step loop as its author writes it. docs/development.md shows a new one; ``loops.py`` lists all."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fb_fairseq.ops.feedback.step_inputs import StepInputs
from fb_fairseq.ops.feedback.types import BlockInputs, StepOutput

if TYPE_CHECKING:
    from fb_fairseq.ops.feedback.block import Block
    from fb_fairseq.ops.feedback.record import Record
    from fb_fairseq.ops.feedback.tile import Tile


class Loop:
    """Runs what is sequential: the steps of a block, forward and backward, and a step of decoding.

    Everything before, between and after the steps is shared (``passes.py``): weights in the compute type, buffers, the
    carried memory's keys and values, tiles of steps, sums of the weights' gradients. A loop computes what
    ``reference.py`` computes, which runs whatever the loop does not cover.
    """

    name: str  # as ``--step-loop`` calls it
    # what it is, and where it runs, for help and docs
    summary: str
    runs: str
    devices: tuple[str, ...] = ("cpu", "cuda")  # types of devices on which it runs
    # whether it records attention weights. If not, its backward pass computes them again, into the tile's workspace,
    # which is then laid out head by head.
    records_weights = True
    own_threads = False  # whether it divides streams among threads itself; torch then uses one thread in the loop
    # whether blocks and decoding steps run as CUDA graphs. Before a graph is used, its results are compared with the
    # reference's (``cuda_graphs/``).
    as_graphs = False
    passes_class: type[Any] | None = None  # a ``Passes`` of its own for its blocks; None: ``TiledPasses``

    def unsupported(self, inputs: BlockInputs) -> str | None:
        """The reason why the loop does not run a block; None if it does."""
        return None

    def forward_steps(self, block: "Block", record: "Record", first: int, last: int, again: bool = False) -> None:
        """Run the steps first … last - 1, one after the other.

        Their results go to ``block.out_TBD``, ``block.memory_KTBD`` and ``block.slots``, activations to the record,
        whose first step is ``first``; a record of one step holds the current step only. The loop may keep anything in
        ``block.own``.

        ``again``: activations are computed again, for the record alone; the results are there.
        """
        raise NotImplementedError

    def backward_tile(self, block: "Block", tile: "Tile", d_out_TBD: Tensor, d_x_TBD: Tensor) -> None:
        """Run the steps of a tile backward, from the last to the first.

        Writes the gradients of the steps' embeddings to ``d_x_TBD`` (without those through layer 1's queries), what the
        weights' gradients need to ``tile.work``, and adds what the tile contributes to the gradients of older slots to
        ``tile.sums.slots``.

        ``d_out_TBD``: the gradient of the block's outputs.
        """
        raise NotImplementedError

    def covers_step(self, stack: Any, inputs: StepInputs) -> bool:
        """Whether the loop runs a step of decoding; else ``stack.reference_step`` does. See ``decode``."""
        return False

    def decode(self, stack: Any, kept: dict[str, Any], inputs: StepInputs) -> StepOutput:
        """Run a step of decoding, and write what it leaves to the ring, which counts it later.

        Args:
            stack: the layers, a ``fb_fairseq.modules.stack.TransformerStack``.
            kept: whatever the loop keeps of the stack from step to step, such as packed weights; empty at first.
            inputs: the step.
        """
        raise NotImplementedError

    def unavailable(self, device: torch.device) -> str | None:
        """The reason why the loop does not run on a device of this machine; None if it does."""
        return None if device.type in self.devices else f"it does not run on {device.type}"

    def details(self) -> str:
        """Facts about the loop on this machine, which ``fb-fairseq env`` prints; may be empty."""
        return ""
