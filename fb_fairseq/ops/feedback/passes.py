"""The two passes over a block, as one ``autograd.Function``: of the reference, or around the steps of a loop.

A loop's backward pass goes through a block in tiles of several steps: after each tile, the weights' gradients are one
product over the tile's rows, and the gradients of older keys and values one product over the tile's steps and layers
(``gradients.py``).
"""

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils import _pytree as pytree

from fb_fairseq.ops.feedback.block import Block, Record
from fb_fairseq.ops.feedback.gradients import BlockGradients
from fb_fairseq.ops.feedback.loop import Loop
from fb_fairseq.ops.feedback.reference import feedback_block
from fb_fairseq.ops.feedback.tile import Tile, Workspace
from fb_fairseq.ops.feedback.types import (
    BlockInputs,
    BlockResults,
    EncoderContext,
    FeedbackWeights,
    Sizes,
)
from fb_fairseq.ops.layers import product_type
from fb_fairseq.ops.threads import loop_threads

# A tile has about this many rows: fewer make its matrix products inefficient, more make a step's gathering from the
# later steps of its tile, which is quadratic in the tile's steps, expensive.
TILE_ROWS = 256
# But not fewer steps than this: each tile reads and writes the gradients of all slots that it reaches once.
MIN_TILE_STEPS = 4
# On a GPU both cost memory traffic: reading and writing S slots for each tile, and gathering from its later steps
# for each step. They balance at about the root of 2 S steps.
GPU_TILE_STEPS = 16
GPU_TILE_STEPS_LONG, LONG_SPAN = 32, 256


class Differentiable(NamedTuple):
    """The arguments of a block that gradients flow to."""

    x_TBD: Tensor
    weights: FeedbackWeights
    encoder: Sequence[EncoderContext]

    @classmethod
    def of(cls, inputs: BlockInputs) -> "Differentiable":
        """Those of a block."""
        return cls(*(getattr(inputs, name) for name in cls._fields))


class Passes(ABC):
    """The two passes over a block."""

    def __init__(self, loop: Loop, needs_backward: bool):
        self.loop, self.needs_backward = loop, needs_backward
        # returns the autograd context that they belong to, or None
        self.owner: Callable[[], object | None] = lambda: None

    @abstractmethod
    def forward(self, inputs: BlockInputs) -> BlockResults:
        """Run the block."""

    @abstractmethod
    def backward(self, d_out_TBD: Tensor) -> Differentiable:
        """The gradients of ``Differentiable``, in the same structure."""

    @abstractmethod
    def free(self) -> None:
        """Free what a forward pass has kept, once its backward pass is done."""

    def _threads(self, inputs: BlockInputs) -> AbstractContextManager[int]:
        largest = 2 * inputs.x_TBD.shape[1] * inputs.weights.layers[0].fc1.weight.numel()
        return loop_threads(inputs.x_TBD.device, 0 if self.loop.own_threads else largest)


class ReferencePasses(Passes):
    """The reference under autograd."""

    def forward(self, inputs):
        leaves, self._tree = pytree.tree_flatten(Differentiable.of(inputs))
        self._leaves = [x.detach().requires_grad_(learns(x)) if torch.is_tensor(x) else x for x in leaves]
        given = inputs._replace(**pytree.tree_unflatten(self._leaves, self._tree)._asdict())
        half = inputs.dtype != inputs.x_TBD.dtype
        autocast = torch.autocast(inputs.x_TBD.device.type, inputs.dtype, half, cache_enabled=False)
        with torch.set_grad_enabled(self.needs_backward), self._threads(inputs), autocast:
            found = feedback_block(given)
        self._inputs, self._out_TBD = inputs, found.out_TBD
        return BlockResults(found.out_TBD.detach(), found.memory_KTBD.detach())

    def backward(self, d_out_TBD):
        wanted = [x for x in self._leaves if learns(x)]
        # The caller may go backward again; ``free`` says when not.
        with self._threads(self._inputs):
            found = torch.autograd.grad(self._out_TBD, wanted, d_out_TBD, retain_graph=True, materialize_grads=True)
        gradients = iter(found)
        return pytree.tree_unflatten([next(gradients) if learns(x) else None for x in self._leaves], self._tree)

    def free(self):
        self._inputs = self._leaves = self._out_TBD = None


def learns(x: object) -> bool:
    """Whether a leaf is a tensor that may have a gradient."""
    return torch.is_tensor(x) and x.is_floating_point()


class TiledPasses(Passes):
    """Passes whose steps a loop runs, backward in tiles."""

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
            sums, work = BlockGradients(block), Workspace(block, size)
            again = block.record(size) if self.record is None else None
            for last in range(s.T, 0, -size):
                first = max(0, last - size)
                if again is not None:
                    recompute(loop, block, again, first, last)
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
    """The passes of a loop over a block. ``needs_backward``: whether there will be a backward pass."""
    return (loop.passes_class or TiledPasses)(loop, needs_backward)


def recompute(loop: Loop, block: Block, record: Record, first: int, last: int) -> None:
    """Compute the activations of a tile's steps again."""
    if block.records_weights and block.ragged:
        record.p.zero_()
    loop.forward_steps(block, record, first, last, again=True)


def tile_steps(s: Sizes, device: torch.device) -> int:
    """The number of steps in a tile."""
    least = MIN_TILE_STEPS
    if device.type != "cpu":
        least = GPU_TILE_STEPS if s.S < LONG_SPAN else GPU_TILE_STEPS_LONG
    return min(s.T, max(least, TILE_ROWS // s.B))


def add_first_queries(tile: Tile, d_x_TBD: Tensor) -> None:
    """Add the gradient of the embeddings through layer 1's queries, for the whole tile."""
    block, s, n = tile.block, tile.block.sizes, tile.steps
    dq_RX, kept_TBD = tile.work.dq[:n, 0].reshape(-1, s.X), tile.work.d_attn_norm[0, :n]
    d_normed_TBD = (dq_RX @ block.weights.layers[0].query.weight).view(n, s.B, s.D)
    if block.inputs.options.normalize_before:
        d_normed_TBD = tile.attn_norm[0].input_gradient(kept_TBD.copy_(d_normed_TBD))
    d_x_TBD[tile.first : tile.last] += d_normed_TBD


def run_block_with(passes_for: Callable[[BlockInputs, bool], Passes], inputs: BlockInputs) -> BlockResults:
    """Run a block of T steps. The memories come out as constants.

    ``passes_for``: the passes for a block, and for whether there will be a backward pass.
    """
    learned, tree = pytree.tree_flatten(Differentiable.of(inputs))
    inputs = inputs._replace(memory_KCBD=inputs.memory_KCBD.detach(), dtype=product_type(inputs.x_TBD))

    def inputs_of(leaves) -> BlockInputs:
        return inputs._replace(**pytree.tree_unflatten(leaves, tree)._asdict())

    with torch.autocast(inputs.x_TBD.device.type, enabled=False):
        return BlockResults(*FeedbackBlock.apply(inputs_of, torch.is_grad_enabled(), passes_for, *learned))


class FeedbackBlock(torch.autograd.Function):
    """One node of autograd's graph for a whole block."""

    @staticmethod
    def forward(ctx, inputs_of, training, passes_for, *learned):
        """Run the block's forward pass.

        Args:
            inputs_of: builds the block's inputs from ``learned``.
            training: whether gradients are wanted at all.
            learned: the leaves of a ``Differentiable``.
        """
        inputs = inputs_of(learned)
        needs_backward = training and any(ctx.needs_input_grad)
        passes = passes_for(inputs, needs_backward)
        results = passes.forward(inputs)
        if needs_backward:
            ctx.passes = passes
            passes.owner = weakref.ref(ctx)
            # The passes hold them already; saved, autograd refuses a backward pass after one was changed in place.
            ctx.save_for_backward(*(x for x in learned if torch.is_tensor(x)))
        ctx.mark_non_differentiable(results.memory_KTBD)
        return tuple(results)

    @staticmethod
    @once_differentiable
    def backward(ctx, d_out_TBD, *_):
        """From the gradient of the outputs to those of ``learned``."""
        _ = ctx.saved_tensors  # raises if one was changed in place
        # None is a leaf in the tree of gradients, as it is in that of the inputs.
        gradients, _ = pytree.tree_flatten(ctx.passes.backward(d_out_TBD))
        constants = len(ctx.needs_input_grad) - len(gradients)
        needed = ctx.needs_input_grad[constants:]
        return (*[None] * constants, *(d if need else None for d, need in zip(gradients, needed)))
