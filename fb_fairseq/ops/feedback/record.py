"""The record of the activations of steps, and what allocates tensors of steps."""

import torch
from torch import Tensor

from fb_fairseq.ops.buffers import Buffers
from fb_fairseq.ops.feedback.types import Sizes

NORMS = ("attn", "cross", "ffn")  # a layer's


class Allocator:
    """Allocates tensors of steps, in the types and shapes that recur.

    Args:
        sizes: of the steps' block; T has no effect.
        buffers: where their memory comes from.
        dtype: of matrix products.
        kept: the type of representations.
        post_norm: whether layers have their norms after sublayers.

    Attributes:
        wide: the type of softmax and of sums over steps, at least fp32.
    """

    def __init__(self, sizes: Sizes, buffers: Buffers, dtype: torch.dtype, kept: torch.dtype, *, post_norm: bool):
        self.sizes = sizes
        self.buffers = buffers
        self.dtype = dtype
        self.kept = kept
        self.post_norm = post_norm
        self.wide = torch.promote_types(kept, torch.float32)

    def new(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """A buffer of any shape, in the representations' type unless ``dtype`` says another."""
        return self.buffers.empty(*shape, dtype=dtype or self.kept)

    def new_compute(self, *shape: int) -> Tensor:
        """A buffer of any shape, in the compute type."""
        return self.buffers.empty(*shape, dtype=self.dtype)

    def by_layer(self, steps: int, width: int, *, compute: bool = False) -> Tensor:
        """Vectors by layer, then step [L, T, B, width].

        Args:
            steps: T.
            compute: in the compute type; else in the representations'.
        """
        make = self.new_compute if compute else self.new
        return make(self.sizes.L, steps, self.sizes.B, width)

    def of_heads(self, steps: int) -> Tensor:
        """Vectors of all heads by step, then layer [T, L, B, X], in the compute type. ``steps``: T."""
        s = self.sizes
        return self.new_compute(steps, s.L, s.B, s.X)


class Record:
    """Activations of some steps, for the backward pass. Those that a block does not need are None.

    Tensors of an attention have steps before layers, so that its matrix products can treat both as one dimension.

    Args:
        allocator: of the tensors.
        steps: their number.
        weights: whether attention weights are recorded; see ``Loop.records_weights``.
        ragged: see ``Block``.

    Attributes:
        x: representations [A, T, B, D]: the embedding and each layer's output.
        attended_x: after self-attention [L, T, B, D].
        q, a: queries and attention outputs [T, L, B, X].
        hidden: of the feed-forward sublayer [L, T, B, F]: after a ReLU, before any other activation.
        attention_sum, cross_sum, ffn_sum: with post-norm, inputs of the layers' norms [L, T, B, D].
        p: with ``weights``, attention weights before dropout [T, L, G, S], column S - d for distance d; zero where a
            step does not reach.
        lse: without, logarithms of the softmax's sums [T, L, G].
        statistics: beside these, by a key of ``NORMS``: mean and 1 / standard deviation of the norm's inputs
            [2, L, T, B].
        crossed_x, cross_q, cross_a, cross_p, cross_lse: with an encoder, the same of the attention to its output;
            ``cross_p`` [T, L, G, C].
    """

    def __init__(self, allocator: Allocator, steps: int, weights: bool, ragged: bool = False):
        s = allocator.sizes
        self.steps = steps
        self.x = allocator.new(s.L + 1, steps, s.B, s.D)
        self.attended_x = allocator.by_layer(steps, s.D)
        self.q = allocator.of_heads(steps)
        self.a = allocator.of_heads(steps)
        self.hidden = allocator.by_layer(steps, s.F, compute=True)
        self.attention_sum = self.cross_sum = self.ffn_sum = None
        self.p = self.lse = self.statistics = None
        self.crossed_x = self.cross_q = self.cross_a = self.cross_p = self.cross_lse = None
        if allocator.post_norm:
            self.attention_sum = allocator.by_layer(steps, s.D)
            self.ffn_sum = allocator.by_layer(steps, s.D)
        if weights:
            self.p = self._by_slot(allocator, steps, s.S, ragged)
        else:
            self.lse = allocator.new(steps, s.L, s.G, dtype=allocator.wide)
            self.statistics = {kind: allocator.new(2, s.L, steps, s.B, dtype=allocator.wide) for kind in NORMS}
        if s.sources:
            self._add_cross_attention(allocator, steps, weights)

    def _add_cross_attention(self, allocator: Allocator, steps: int, weights: bool) -> None:
        """Make the tensors of the attention to the encoder."""
        s = allocator.sizes
        self.crossed_x = allocator.by_layer(steps, s.D)
        self.cross_q = allocator.of_heads(steps)
        self.cross_a = allocator.of_heads(steps)
        if allocator.post_norm:
            self.cross_sum = allocator.by_layer(steps, s.D)
        if weights:
            self.cross_p = self._by_slot(allocator, steps, s.sources, False)
        else:
            self.cross_lse = allocator.new(steps, s.L, s.G, dtype=allocator.wide)

    @staticmethod
    def _by_slot(allocator: Allocator, steps: int, width: int, zeros: bool) -> Tensor:
        """Attention weights [T, L, G, width], zero at first or not set."""
        make = allocator.buffers.zeros if zeros else allocator.buffers.empty
        return make(steps, allocator.sizes.L, allocator.sizes.G, width, dtype=allocator.wide)
