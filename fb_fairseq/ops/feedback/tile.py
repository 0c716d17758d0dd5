"""Tiles of steps of a loop's backward pass.

The backward pass goes through a block in tiles of several steps. Its loop computes gradients of activations only and
leaves them in a workspace; at a tile's end each weight's gradient is one product over the tile's rows
(``gradients.py``).
"""

from typing import Any

import torch
from torch import Tensor

from fb_fairseq.ops.feedback.block import Block
from fb_fairseq.ops.feedback.record import Record
from fb_fairseq.ops.feedback.types import Sizes
from fb_fairseq.ops.layers import LAYER_NORM_EPS, Affine, Dropout

ALIGNED = 16  # numbers; products on tensor cores need aligned rows
# A tile has about this many rows: fewer make its matrix products inefficient, more make a step's gathering from the
# later steps of its tile, which is quadratic in the tile's steps, expensive.
TILE_ROWS = 256
# But not fewer steps than this: each tile reads and writes the gradients of all slots that it reaches once.
MIN_TILE_STEPS = 4
# On a GPU both cost memory traffic: reading and writing S slots for each tile, and gathering from its later steps
# for each step. They balance at about the root of 2 S steps.
GPU_TILE_STEPS = 16
GPU_TILE_STEPS_LONG, LONG_SPAN = 32, 256


def tile_steps(s: Sizes, device: torch.device) -> int:
    """The number of steps in a tile of a block of these sizes."""
    least = MIN_TILE_STEPS
    if device.type != "cpu":
        least = GPU_TILE_STEPS if s.S < LONG_SPAN else GPU_TILE_STEPS_LONG
    return min(s.T, max(least, TILE_ROWS // s.B))


class Normed:
    """A layer norm over some steps: its result and the statistics that its gradient needs.

    Attributes:
        result_TBD: the normalised input; the input itself where there is no norm.
    """

    def __init__(self, x_TBD: Tensor, norm: Affine | None):
        self.x_TBD, self.norm, self.result_TBD = x_TBD, norm, x_TBD
        if norm is not None:
            self.result_TBD, self.mean, self.rstd = torch.native_layer_norm(
                x_TBD, x_TBD.shape[-1:], norm.weight, norm.bias, LAYER_NORM_EPS
            )

    def rows(self, dtype: torch.dtype) -> Tensor:
        """The result of all steps, [R, D]."""
        return self.result_TBD.flatten(0, 1).to(dtype)

    def backward(self, d_normed_TBD: Tensor, wanted: list[bool]) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of input, weight and bias, from that of the result: those that are wanted."""
        x = self.x_TBD
        return torch.ops.aten.native_layer_norm_backward(
            d_normed_TBD.to(x.dtype), x, x.shape[-1:], self.mean, self.rstd, *self.norm, wanted
        )


class Workspace:
    """Per-step gradients that become weight gradients after the tile. Made once per block, used by all tiles.

    Attributes:
        dq, da: gradients of queries and of attended vectors [T, L, B, X]; ``dcq``, ``dca``: the same for
            attention to the encoder.
        d_attention, d_ffn, d_crossed: gradients of the sublayers' outputs, after dropout [L, T, B, D].
        d_hidden: gradient of the feed-forward sublayer's hidden vector, before its activation [L, T, B, F].
        d_attn_norm, d_ffn_norm, d_cross_norm: gradients of the norms' results [L, T, B, D].
        d_kv_ITBZ: gradients of each step's keys and values, side by side; d_kv_normed_ITBD: of the normed memories.
        d_memory_KTBD: gradients of the memories.
        ds_TLGW: the scores' gradients; ``p_TLGW``: attention weights after dropout. Both by slot: the window of the
            tile's step i begins in column i. ``ds_TLGS`` and ``p_TLGS`` are their windows, by distance.
        dcs: gradients of the scores of attention to the encoder [T, L, G, C].
        cross_p: that attention's weights after dropout [T, L, G, C], where they are not recorded; else None.
    """

    def __init__(self, block: Block, steps: int):
        s, allocator = block.sizes, block.allocator
        L, B = s.L, s.B
        self.dq = allocator.of_heads(steps)
        self.da = allocator.of_heads(steps)
        self.d_attention = allocator.by_layer(steps, s.D, compute=True)
        self.d_ffn = allocator.by_layer(steps, s.D, compute=True)
        self.d_hidden = allocator.by_layer(steps, s.F, compute=True)
        self.d_attn_norm = allocator.by_layer(steps, s.D)
        self.d_ffn_norm = allocator.by_layer(steps, s.D)
        self.d_kv_ITBZ = allocator.new_compute(s.I, steps, B, 2 * s.X)
        self.d_kv_normed_ITBD = allocator.new(s.I, steps, B, s.D)
        self.d_memory_KTBD = allocator.new(s.K, steps, B, s.D)
        self.dcq = self.dca = self.d_crossed = self.d_cross_norm = self.dcs = self.cross_p = None
        if s.sources:
            self.dcq = allocator.of_heads(steps)
            self.dca = allocator.of_heads(steps)
            self.d_crossed = allocator.by_layer(steps, s.D, compute=True)
            self.d_cross_norm = allocator.by_layer(steps, s.D)
            self.dcs = allocator.new_compute(steps, L, s.G, s.sources)
            self.cross_p = None if block.records_weights else allocator.new_compute(steps, L, s.G, s.sources)
        self.ds_TLGW = by_slot(block, steps)
        self.p_TLGW = by_slot(block, steps)
        self.ds_TLGS = step_windows(self.ds_TLGW, s.S)
        self.p_TLGS = step_windows(self.p_TLGW, s.S)

    def clear_windows(self) -> None:
        """Zero what is laid out by slot, before a tile whose steps or layers do not reach all of it."""
        self.ds_TLGW.zero_()
        self.p_TLGW.zero_()


def by_slot(block: Block, steps: int) -> Tensor:
    """Zeros for a number per step, layer, head and slot [T, L, G, W]; head by head in memory where weights are not
    recorded, as the products after the steps read them.
    """
    s = block.sizes
    width = s.S + steps - 1
    if block.records_weights:
        return block.allocator.new_compute(steps, s.L, s.G, width).zero_()
    width = -(-width // ALIGNED) * ALIGNED
    return block.allocator.new_compute(s.G, steps, s.L, width).zero_().permute(1, 2, 0, 3)


def step_windows(x_TLGW: Tensor, span: int) -> Tensor:
    """The windows [T, L, G, S] of a tile's steps: step i's begins in column i.

    They are a view, to be written to; ``fb_fairseq.ops.attention.by_distance`` copies.
    """
    step, layer, head, _ = x_TLGW.stride()
    return x_TLGW.as_strided((*x_TLGW.shape[:3], span), (step + 1, layer, head, 1))


class Tile:
    """Some consecutive steps of a block: first … last - 1.

    Args:
        sums: ``BlockGradients`` of the block (whose file imports this one): the sums of the weights' gradients, and the
            gradients of slots.
        record: the activations of all steps of the block, or of the tile's.
        work: where the steps leave what the weights' gradients need.

    Attributes:
        at: where the tile begins in the record of activations.
        attn_norm, ffn_norm, cross_norm: each layer's norms over the tile's steps.
        memory_norm: the norm before each set of key and value projections.
    """

    def __init__(self, sums: Any, record: Record, work: Workspace, first: int, last: int):
        block = sums.block
        self.block = block
        self.record = record
        self.work = work
        self.sums = sums
        self.first = first
        self.last = last
        self.steps = last - first
        self.at = first if record.steps == block.sizes.T else 0
        in_record = slice(self.at, self.at + self.steps)
        layers = block.weights.layers
        pre_norm = block.inputs.options.normalize_before

        def norms(pre: Tensor, post: Tensor | None, affines: list[Affine]) -> list[Normed]:
            inputs = pre if pre_norm else post
            return [Normed(inputs[l, in_record], affine) for l, affine in enumerate(affines)]

        last_x = record.crossed_x if block.encoder else record.attended_x
        self.attn_norm = norms(record.x, record.attention_sum, [layer.attn_norm for layer in layers])
        self.ffn_norm = norms(last_x, record.ffn_sum, [layer.ffn_norm for layer in layers])
        if block.encoder:
            self.cross_norm = norms(record.attended_x, record.cross_sum, [layer.cross.attn_norm for layer in layers])
        self.memory_norm = [
            Normed(block.memory_KTBD[kv.memory, first:last], block.weights.projections[kv.projection].norm)
            for kv in block.weights.kv_sets
        ]

    def rows(self, x: Tensor, l: int) -> Tensor:
        """The tile's rows of a layer of a recorded tensor [L, T, B, …], [R, …]."""
        return x[l, self.at : self.at + self.steps].flatten(0, 1)

    def vectors(self, x: Tensor, l: int) -> Tensor:
        """The tile's rows of a layer of a recorded tensor [T, L, B, X], [R, X]."""
        return x[self.at : self.at + self.steps, l].flatten(0, 1)

    def mask(self, mask: Dropout, l: int) -> Tensor:
        """The kept entries of a dropout mask [L, T, …] for the tile's steps of a layer."""
        return mask.keep[l, self.first : self.last]
