"""A block's data: sizes, weights in the compute type, slots for keys and values, and the record of activations."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fb_fairseq.ops.attention import Positions, SpanTerms, span_terms
from fb_fairseq.ops.buffers import Buffers
from fb_fairseq.ops.feedback.types import (
    BlockInputs,
    EncoderContext,
    FeedbackWeights,
    KeyValueSet,
    Sizes,
    block_sizes,
)
from fb_fairseq.ops.layers import Affine, Layer, Projection, layer_norm, linear
from fb_fairseq.ops.threads import each

# Steps outside the loop are projected in pieces of about this many rows: enough for an efficient matrix
# product, few enough that a CPU takes the memory for the result from its allocator's free lists instead of from the
# system.
PROJECTION_ROWS = 512
NORMS = ("attn", "cross", "ffn")  # a layer's


class ComputeWeights(NamedTuple):
    """The weights as the loop needs them, contiguous, and matrices in the compute type.

    Attributes:
        key_values: each projection's key and value matrices as one, so that both are one product.
        kv_sets: the I sets of keys and values.
        mix_KA: in the type of representations.
        positions: row S - d for distance d, so that the newest slot is last.
        spans: each layer's adaptive spans, also newest last; None where all heads reach S steps.
    """

    layers: list[Layer]
    projections: Sequence[Projection]
    key_values: list[Affine]
    kv_sets: list[KeyValueSet]
    mix_KA: Tensor
    positions: Positions
    spans: list[SpanTerms | None]


def contiguous(tree: Any) -> Any:
    """Nested tuples and lists with their tensors contiguous."""
    return pytree.tree_map_only(Tensor, Tensor.contiguous, tree)


def compute_weights(weights: FeedbackWeights, span: int, dtype: torch.dtype, kept: torch.dtype) -> ComputeWeights:
    """Convert weights to the types in which they are used. Norms keep the type of the parameters.

    Args:
        span: S.
        dtype: of the matrices.
        kept: the type of representations, and of the mix.
    """

    def cast(x: Any) -> Any:
        if not isinstance(x, Affine) or x.weight.dim() == 1:
            return x
        return Affine(*(None if part is None else part.to(dtype) for part in x))

    def joined(projection: Projection) -> Affine:
        key, value = projection.key, projection.value
        bias = None if key.bias is None else torch.cat([key.bias, value.bias])
        return cast(Affine(torch.cat([key.weight, value.weight]), bias))

    layers = pytree.tree_map(cast, list(weights.layers), is_leaf=lambda x: isinstance(x, Affine))
    return ComputeWeights(
        layers=contiguous(layers),
        projections=weights.projections,
        key_values=[joined(projection) for projection in weights.projections],
        kv_sets=weights.kv_sets,
        mix_KA=weights.mix_KA.to(kept),
        positions=pytree.tree_map_only(Tensor, lambda x: x.to(dtype), weights.positions.of_window(span)),
        spans=span_terms_of(weights.layers, span),
    )


def span_terms_of(layers: Sequence[Layer], span: int) -> list[SpanTerms | None]:
    """The layers' adaptive spans within S steps, the newest last; None where all heads reach S steps."""
    masks = (layer.span_mask_HS for layer in layers)
    return [None if mask_HS is None else span_terms(mask_HS[:, :span].flip(1)) for mask_HS in masks]


class KeyValueSlots:
    """Keys and values of the carried memory and of the block's own steps: C slots, then one per step.

    Nothing is concatenated: a step attends to a view of the last slots, and writes its own keys and values behind it.
    """

    def __init__(self, sizes: Sizes, weights: ComputeWeights, buffers: Buffers, dtype: torch.dtype):
        self.sizes, self.weights, self.dtype = sizes, weights, dtype
        shape = (sizes.I, sizes.G, sizes.C + sizes.T, sizes.E)
        self.keys_IGCE = buffers.empty(*shape, dtype=dtype)
        self.values_IGCE = buffers.empty(*shape, dtype=dtype)

    def project(self, memory_KRD: Tensor, slot: int, steps: int) -> None:
        """Write keys and values of the memories [K, steps x B, D] of consecutive steps, from ``slot`` on."""
        s = self.sizes
        for i, kv in enumerate(self.weights.kv_sets):
            norm = self.weights.projections[kv.projection].norm
            normed_RD = layer_norm(memory_KRD[kv.memory], norm).to(self.dtype)
            both = linear(normed_RD, self.weights.key_values[kv.projection]).view(steps, s.B, 2, s.H, s.E)
            for slots_GCE, new in ((self.keys_IGCE[i], both[:, :, 0]), (self.values_IGCE[i], both[:, :, 1])):
                slots_GCE.view(s.B, s.H, -1, s.E)[:, :, slot : slot + steps] = new.permute(1, 2, 0, 3)


class EncoderSlots(NamedTuple):
    """One layer's keys and values of the encoder's output, in the compute type, contiguous.

    Attributes:
        keys_GCE, values_GCE: head by head.
        padding_BC: True where the source is padded; None: nowhere.
    """

    keys_GCE: Tensor
    values_GCE: Tensor
    padding_BC: Tensor | None


def encoder_slots(context: EncoderContext, dtype: torch.dtype) -> EncoderSlots:
    """A layer's keys and values of the encoder's output, head by head."""
    keys, values = (x.to(dtype).permute(1, 2, 0, 3).flatten(0, 1) for x in context[:2])
    return contiguous(EncoderSlots(keys, values, context.padding_BC))


def pieces(steps: int, streams: int, device: torch.device) -> list[slice]:
    """Slices of ``range(steps)``, on a CPU of about ``PROJECTION_ROWS`` rows each."""
    size = max(1, PROJECTION_ROWS // streams if device.type == "cpu" else steps)
    return [slice(first, min(first + size, steps)) for first in range(0, steps, size)]


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


class Block:
    """A block: whatever its steps read, and where they write, except the record of activations.

    Args:
        records_weights: see ``Loop``.
        threads: how many share what is done outside of the loop over steps.

    Attributes:
        inputs, sizes, weights: the arguments, and the weights in the compute type.
        room: how tensors of its steps are made.
        slots: keys and values of the carried memory and of the block's steps.
        out_TBD, memory_KTBD: the outputs, and the memories that the steps leave.
        reaches: how many steps back each layer reaches.
        ragged: some steps or layers reach fewer than S slots.
        wide: the type of softmax and of sums over steps, at least fp32.
        own: anything that the loop keeps for the block.
    """

    def __init__(self, inputs: BlockInputs, records_weights: bool = True, threads: int = 1):
        self.inputs, self.records_weights, self.threads, self.own = inputs, records_weights, threads, None
        self.sizes = s = block_sizes(inputs)
        device, options = inputs.x_TBD.device, inputs.options
        self.weights = compute_weights(inputs.weights, s.S, inputs.dtype, inputs.x_TBD.dtype)
        self.buffers = Buffers(device)
        self.encoder = [encoder_slots(context, inputs.dtype) for context in inputs.encoder]
        post_norm = not options.normalize_before
        self.room = Room(s, self.buffers, inputs.dtype, inputs.x_TBD.dtype, post_norm=post_norm)
        self.dtype, self.wide, self.scale = inputs.dtype, self.room.wide, s.E**-0.5
        spans = [layer.span_mask_HS for layer in inputs.weights.layers]
        self.reaches = [s.S if span is None else min(s.S, span.shape[1]) for span in spans]
        self.ragged = s.C < s.S or min(self.reaches) < s.S
        self.slots = KeyValueSlots(s, self.weights, self.buffers, self.dtype)
        self.out_TBD = inputs.x_TBD.new_empty(s.T, s.B, s.D)
        self.memory_KTBD = inputs.x_TBD.new_empty(s.K, s.T, s.B, s.D)
        each([partial(self._project_carried, steps) for steps in pieces(s.C, s.B, device)], threads)

    def _project_carried(self, steps: slice) -> None:
        """Write keys and values of some steps of the carried memory."""
        memory_KRD = self.inputs.memory_KCBD[:, steps].flatten(1, 2)
        self.slots.project(memory_KRD, steps.start, steps.stop - steps.start)

    def record(self, steps: int) -> Record:
        """A new record of some steps' activations."""
        return Record(self.room, steps, self.records_weights, self.ragged)

    def first_queries(self, first: int, last: int) -> Sequence[Tensor]:
        """Layer 1's queries [B, X] of the steps first … last - 1: they depend on the embeddings alone."""
        layer, queries = self.weights.layers[0], []
        for steps in pieces(last - first, self.sizes.B, self.inputs.x_TBD.device):
            x = self.inputs.x_TBD[first + steps.start : first + steps.stop]
            x = layer_norm(x, layer.attn_norm if self.inputs.options.normalize_before else None)
            queries += linear(x.to(self.dtype), layer.query).unbind(0)
        return queries
