"""Tiles of steps of a loop's backward pass.

The backward pass goes through a block in tiles of several steps. Its loop computes gradients of activations only and
leaves them in a workspace (``workspace.py``); at a tile's end each weight's gradient is one product over the tile's
rows (``gradients.py``).
"""

from typing import Any

import torch
from torch import Tensor

from fb_fairseq.ops.dropout import Dropout
from fb_fairseq.ops.feedback.record import Record
from fb_fairseq.ops.feedback.types import Sizes
from fb_fairseq.ops.feedback.workspace import Workspace
from fb_fairseq.ops.layers import LAYER_NORM_EPS, Affine

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
