"""The two passes over a block: of the reference, or around the steps of a loop.

A loop's backward pass goes through a block in tiles of several steps: after each tile, the weights' gradients are one
product over the tile's rows, and the gradients of older keys and values one product over the tile's steps and layers
(``gradients.py``).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fb_fairseq.ops.feedback.block import Block
from fb_fairseq.ops.feedback.gradients import BlockGradients
from fb_fairseq.ops.feedback.loop import Loop
from fb_fairseq.ops.feedback.record import Record
from fb_fairseq.ops.feedback.reference import feedback_block
from fb_fairseq.ops.feedback.tile import Tile, tile_steps
from fb_fairseq.ops.feedback.types import (
    BlockInputs,
    BlockResults,
    EncoderContext,
    FeedbackWeights,
)
from fb_fairseq.ops.feedback.workspace import Workspace
from fb_fairseq.ops.threads import loop_threads


class Differentiable(NamedTuple):
    """The arguments of a block that gradients flow to."""

    x_TBD: Tensor
    weights: FeedbackWeights
    encoder: Sequence[EncoderContext]

    @classmethod
    def of(cls, inputs: BlockInputs) -> "Differentiable":
        """Those of a block."""
        return cls(inputs.x_TBD, inputs.weights, inputs.encoder)


class Passes(ABC):
    """The two passes over a block.

    Args:
        loop: what runs its steps.
        needs_backward: whether there will be a backward pass.
    """

    def __init__(self, loop: Loop, needs_backward: bool):
        self.loop = loop
        self.needs_backward = needs_backward

    @abstractmethod
    def forward(self, inputs: BlockInputs) -> BlockResults:
        """Run the block."""

    @abstractmethod
    def backward(self, d_out_TBD: Tensor) -> Differentiable:
        """The gradients of ``Differentiable``, in the same structure, from that of the outputs. May be called again."""

    def held_by(self, context: Callable[[], Any | None]) -> None:  # noqa: B027 (captured passes alone need it)
        """Take a weak reference to autograd's context, which may go backward as long as it lives."""

    @abstractmethod
    def free(self) -> None:
        """Free what a forward pass has kept, once its backward pass is done."""

    def _threads(self, inputs: BlockInputs) -> AbstractContextManager[int]:
        """Context of the steps; see ``loop_threads``."""
        largest = 2 * inputs.x_TBD.shape[1] * inputs.weights.layers[0].fc1.weight.numel()
        return loop_threads(inputs.x_TBD.device, 0 if self.loop.own_threads else largest)


class ReferencePasses(Passes):
    """The reference under autograd."""

    def forward(self, inputs):
        given = Differentiable.of(inputs)
        self._own = own = pytree.tree_map(lambda x: x.detach().requires_grad_() if learns(x) else x, given)
        half = inputs.dtype != inputs.x_TBD.dtype
        autocast = torch.autocast(inputs.x_TBD.device.type, inputs.dtype, half, cache_enabled=False)
        with torch.set_grad_enabled(self.needs_backward), self._threads(inputs), autocast:
            found = feedback_block(inputs._replace(**own._asdict()))
        self._inputs, self._out_TBD = inputs, found.out_TBD
        return BlockResults(found.out_TBD.detach(), found.memory_KTBD.detach())

    def backward(self, d_out_TBD):
        wanted = [x for x in pytree.tree_leaves(self._own) if learns(x)]
        with self._threads(self._inputs):
            found = torch.autograd.grad(self._out_TBD, wanted, d_out_TBD, retain_graph=True, materialize_grads=True)
        gradients = iter(found)
        return pytree.tree_map(lambda x: next(gradients) if learns(x) else None, self._own)

    def free(self):
        self._inputs = self._own = self._out_TBD = None


def learns(x: object) -> bool:
    """Whether a leaf is a tensor that may have a gradient."""
    return torch.is_tensor(x) and x.is_floating_point()


class TiledPasses(Passes):
    """Passes whose steps a loop runs, backward in tiles.

    Attributes:
        block: the data of the last block that went forward.
        record: the activations of all its steps; None: they are computed again, tile by tile.
    """

    def forward(self, inputs):
        records_all = self.needs_backward and not inputs.options.recompute
        with self._threads(inputs) as threads:
            block = Block(inputs, self.loop.records_weights, threads if self.loop.own_threads else 1)
            record = block.record(block.sizes.T if records_all else 1)
            self.loop.forward_steps(block, record, 0, block.sizes.T)
        if self.needs_backward:
            self.block, self.record = block, record if records_all else None
        return BlockResults(block.out_TBD, block.memory_KTBD)

    def backward(self, d_out_TBD):
        block, s, loop = self.block, self.block.sizes, self.loop
        with self._threads(block.inputs):
            d_out_TBD = d_out_TBD.contiguous()
            d_x_TBD = torch.empty_like(block.inputs.x_TBD, memory_format=torch.contiguous_format)
            size = tile_steps(s, d_x_TBD.device)
            sums = BlockGradients(block)
            work = Workspace(block, size)
            again = block.record(size) if self.record is None else None
            for last in range(s.T, 0, -size):
                first = max(0, last - size)
                if again is not None:
                    recompute(loop, block, again, first, last)
                if block.ragged:
                    work.clear_windows()
                tile = Tile(sums, again or self.record, work, first, last)
                loop.backward_tile(block, tile, d_out_TBD, d_x_TBD)
                add_first_queries(tile, d_x_TBD)
                sums.add_tile(tile)
            if s.C:
                sums.add_carried()
            return Differentiable(d_x_TBD, sums.weights(), sums.encoder_contexts())

    def free(self):
        self.block = self.record = None


def passes_of(loop: Loop, needs_backward: bool) -> Passes:
    """The passes of a loop over a block; see ``Passes``."""
    return (loop.passes_class or TiledPasses)(loop, needs_backward)


def recompute(loop: Loop, block: Block, record: Record, first: int, last: int) -> None:
    """Compute the activations of a tile's steps, first … last - 1, again: into a record of as many steps."""
    if block.records_weights and block.ragged:
        record.p.zero_()
    loop.forward_steps(block, record, first, last, again=True)


def add_first_queries(tile: Tile, d_x_TBD: Tensor) -> None:
    """Add the gradient of the embeddings through layer 1's queries, for the whole tile."""
    block, s, n = tile.block, tile.block.sizes, tile.steps
    dq_RX, kept_TBD = tile.work.dq[:n, 0].reshape(-1, s.X), tile.work.d_attn_norm[0, :n]
    d_normed_TBD = (dq_RX @ block.weights.layers[0].query.weight).view(n, s.B, s.D)
    if block.inputs.options.normalize_before:
        d_normed_TBD, _, _ = tile.attn_norm[0].backward(kept_TBD.copy_(d_normed_TBD), [True, False, False])
    d_x_TBD[tile.first : tile.last] += d_normed_TBD
