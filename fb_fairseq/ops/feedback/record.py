"""The record of activations, and what makes the tensors of steps."""

import torch
from torch import Tensor

from fb_fairseq.ops.buffers import Buffers
from fb_fairseq.ops.feedback.types import Sizes

NORMS = ("attn", "cross", "ffn")  # a layer's


class Room:
    """Makes the tensors of some steps.

    Args:
        sizes: of the steps' block.
        buffers: where their memory comes from.
        dtype: of matrix products.
        kept: the type of representations.
        post_norm: whether layers have their norms after sublayers.

    Attributes:
        wide: the type of softmax and of sums over steps, at least fp32.
    """

    def __init__(self, sizes: Sizes, buffers: Buffers, dtype: torch.dtype, kept: torch.dtype, *, post_norm: bool):
        self.sizes, self.buffers, self.dtype, self.kept, self.post_norm = sizes, buffers, dtype, kept, post_norm
        self.wide = torch.promote_types(kept, torch.float32)

    def new(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """A buffer in the representations' type."""
        return self.buffers.empty(*shape, dtype=dtype or self.kept)

    def new_compute(self, *shape: int) -> Tensor:
        """A buffer in the compute type."""
        return self.buffers.empty(*shape, dtype=self.dtype)

    def by_layer(self, steps: int, width: int, *, compute: bool = False, layers: int | None = None) -> Tensor:
        """Vectors by layer, then step [L, T, B, width].

        Args:
            compute: in the compute type; else in the representations'.
            layers: another number than L.
        """
        make = self.new_compute if compute else self.new
        return make(layers or self.sizes.L, steps, self.sizes.B, width)

    def of_heads(self, steps: int) -> Tensor:
        """Vectors of all heads by step, then layer [T, L, B, X]."""
        s = self.sizes
        return self.new_compute(steps, s.L, s.B, s.X)


class Record:
    """Activations of some steps, for the backward pass.

    Tensors of an attention have steps before layers, so that its matrix products can treat both as one dimension. Those
    that a block does not need are None: sums with pre-norm, attention to an encoder without one.

    Attributes:
        x: representations [A, T, B, D]: the embedding and each layer's output.
        attended_x: after self-attention [L, T, B, D]; ``crossed_x``: after attention to the encoder.
        q, a: queries and attention outputs [T, L, B, X]; ``cross_q``, ``cross_a``: the same for the encoder.
        p: attention weights before dropout [T, L, G, S], column S - d for distance d; zero where a step does not reach.
            ``cross_p`` [T, L, G, C]: the same for the encoder.
        hidden: of the feed-forward sublayer [L, T, B, F]: after a ReLU, before any other activation.
        attention_sum, cross_sum, ffn_sum: inputs of the norms of post-norm layers [L, T, B, D].
        lse, cross_lse: instead of weights, logarithms of the softmax's sums [T, L, G].
        statistics: beside these, of each kind of norm: mean and 1 / standard deviation of its inputs [2, L, T, B].

    ``weights``: whether attention weights are recorded; see ``Loop.records_weights``. ``ragged``: see ``Block``.
    """

    def __init__(self, room: Room, steps: int, weights: bool, ragged: bool = False):
        s, self.steps = room.sizes, steps
        self.x, self.attended_x = room.by_layer(steps, s.D, layers=s.L + 1), room.by_layer(steps, s.D)
        self.q, self.a = room.of_heads(steps), room.of_heads(steps)
        self.hidden = room.by_layer(steps, s.F, compute=True)
        self.attention_sum = self.cross_sum = self.ffn_sum = None
        if room.post_norm:
            self.attention_sum, self.ffn_sum = room.by_layer(steps, s.D), room.by_layer(steps, s.D)
        self.crossed_x = self.cross_q = self.cross_a = self.cross_p = self.cross_lse = None
        if s.sources:
            self.cross_sum = room.by_layer(steps, s.D) if room.post_norm else None
            self.crossed_x = room.by_layer(steps, s.D)
            self.cross_q, self.cross_a = room.of_heads(steps), room.of_heads(steps)
        if weights:
            self.p = self._by_slot(room, steps, s.S, ragged)
            if s.sources:
                self.cross_p = self._by_slot(room, steps, s.sources, False)
        else:
            self.lse = room.new(steps, s.L, s.G, dtype=room.wide)
            if s.sources:
                self.cross_lse = room.new(steps, s.L, s.G, dtype=room.wide)
            self.statistics = {kind: room.new(2, s.L, steps, s.B, dtype=room.wide) for kind in NORMS}

    @staticmethod
    def _by_slot(room: Room, steps: int, width: int, zeros: bool) -> Tensor:
        make = room.buffers.zeros if zeros else room.buffers.empty
        return make(steps, room.sizes.L, room.sizes.G, width, dtype=room.wide)
