"""What the torch loop prepares once per block: sizes, weights in the compute type, and slots for keys and values.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

from typing import List, NamedTuple, Optional, Sequence

import torch
from torch import Tensor

from fb_fairseq.ops.attention import SpanTerms, span_terms
from fb_fairseq.ops.buffers import Buffers
from fb_fairseq.ops.feedback.types import (
    EncoderContext,
    FeedbackDropouts,
    FeedbackOptions,
    FeedbackWeights,
    KeyValueSource,
    one_or_own,
)
from fb_fairseq.ops.layers import Affine, Layer, Projection, layer_norm, linear

# Steps outside the loop are projected in pieces of about this many rows: enough for an efficient matrix
# product, few enough that a CPU takes the memory for the result from its allocator's free lists instead of from the
# system.
PROJECTION_ROWS = 512
GPU_PROJECTION_ROWS = 1 << 15  # where each piece costs several launches


class BlockInputs(NamedTuple):
    """Arguments of ``fb_fairseq.ops.feedback.reference.feedback_block``, and the type of matrix products."""

    x_TBD: Tensor
    memory_KCBD: Tensor
    weights: FeedbackWeights
    options: FeedbackOptions
    dropouts: FeedbackDropouts
    active: List[bool]
    encoder: List[EncoderContext]
    reach_TB: Optional[Tensor]
    dtype: torch.dtype


class Sizes(NamedTuple):
    """A block's sizes, named by the letters of the legend. S is capped at the reach of the block's last step."""

    T: int
    B: int
    D: int
    L: int
    H: int
    E: int
    F: int
    K: int
    C: int
    S: int
    I: int  # noqa: E741

    @property
    def G(self) -> int:
        """B x H."""
        return self.B * self.H

    @property
    def X(self) -> int:
        """H x E."""
        return self.H * self.E


def block_sizes(inputs: BlockInputs) -> Sizes:
    """The sizes of a block."""
    T, B, D = inputs.x_TBD.shape
    K, C = inputs.memory_KCBD.shape[:2]
    layers, heads = inputs.weights.layers, inputs.options.heads
    return Sizes(
        T=T,
        B=B,
        D=D,
        L=len(layers),
        H=heads,
        E=layers[0].query.weight.shape[0] // heads,
        F=layers[0].fc1.weight.shape[0],
        K=K,
        C=C,
        S=min(inputs.options.span, max(1, C + T - 1)),
        I=len(inputs.weights.sources),
    )


class ComputeWeights(NamedTuple):
    """The weights as the loop needs them, matrices in the compute type.

    Attributes:
        key_values: each projection's key and value matrices as one, so that both are one product.
        sources: where each of the I sets of keys and values comes from.
        key_positions_SE, value_positions_SE: row S - d for distance d, so that the newest slot is last.
        spans: each layer's adaptive spans, also newest last; None where all heads reach S steps.
    """

    layers: List[Layer]
    projections: Sequence[Projection]
    key_values: List[Affine]
    sources: List[KeyValueSource]
    mix_KA: Tensor
    key_positions_SE: Optional[Tensor]
    value_positions_SE: Optional[Tensor]
    spans: List[Optional[SpanTerms]]


def compute_weights(weights: FeedbackWeights, span: int, dtype: torch.dtype, wide: torch.dtype) -> ComputeWeights:
    """Convert weights to the types in which they are used. Norms keep the type of the parameters.

    Args:
        span: S.
        dtype: of the matrices.
        wide: of the mix.
    """

    def cast(affine: Affine) -> Affine:
        return Affine(*(None if x is None else x.to(dtype) for x in affine))

    def cast_layer(layer: Layer) -> Layer:
        cross = layer.cross
        if cross is not None:
            cross = cross._replace(query=cast(cross.query), out=cast(cross.out))
        return layer._replace(
            query=cast(layer.query), out=cast(layer.out), fc1=cast(layer.fc1), fc2=cast(layer.fc2), cross=cross
        )

    def joined(projection: Projection) -> Affine:
        key, value = projection.key, projection.value
        bias = None if key.bias is None else torch.cat([key.bias, value.bias])
        return cast(Affine(torch.cat([key.weight, value.weight]), bias))

    key_positions, value_positions = (
        None if table is None else table[:span].flip(0).to(dtype) for table in weights.positions
    )
    return ComputeWeights(
        layers=[cast_layer(layer) for layer in weights.layers],
        projections=weights.projections,
        key_values=[joined(projection) for projection in weights.projections],
        sources=weights.sources,
        mix_KA=weights.mix_KA.to(wide),
        key_positions_SE=key_positions,
        value_positions_SE=value_positions,
        spans=[
            None if layer.span_mask_HS is None else span_terms(layer.span_mask_HS[:, :span].flip(1))
            for layer in weights.layers
        ],
    )


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
        for i, source in enumerate(self.weights.sources):
            norm = self.weights.projections[source.projection].norm
            normed_RD = layer_norm(memory_KRD[source.memory], norm).to(self.dtype)
            both = linear(normed_RD, self.weights.key_values[source.projection]).view(steps, s.B, 2, s.H, s.E)
            for slots_GCE, new in ((self.keys_IGCE[i], both[:, :, 0]), (self.values_IGCE[i], both[:, :, 1])):
                slots_GCE.view(s.B, s.H, -1, s.E)[:, :, slot : slot + steps] = new.permute(1, 2, 0, 3)

    def windows(self, reaches: Sequence[int]) -> List["Windows"]:
        """Each layer's windows. Layers with the same keys and reach share them.

        Args:
            reaches: how many steps back each layer reaches.
        """
        s, made = self.sizes, {}
        sets = [one_or_own(l, s.I) for l in range(len(reaches))]
        for i, reach in zip(sets, reaches):
            if (i, reach) not in made:
                made[i, reach] = Windows(self.keys_IGCE[i], self.values_IGCE[i], s.C, s.T, reach)
        return [made[i, reach] for i, reach in zip(sets, reaches)]


class Windows:
    """The slots that each step of a block reaches, as lists of views, one per step.

    Attributes:
        lengths: number of slots n of each step.
        keys_GnE, values_GnE, keys_GEn, values_GEn: the slots, and their transposes.
    """

    def __init__(self, keys_GCE: Tensor, values_GCE: Tensor, carried: int, steps: int, reach: int):
        self.lengths = [min(carried + t, reach) for t in range(steps)]
        self.keys_GEn = self._transposed(keys_GCE, carried, steps, reach)
        self.values_GEn = self._transposed(values_GCE, carried, steps, reach)
        self.keys_GnE = [x.transpose(1, 2) for x in self.keys_GEn]
        self.values_GnE = [x.transpose(1, 2) for x in self.values_GEn]

    @staticmethod
    def _transposed(slots_GCE: Tensor, carried: int, steps: int, reach: int) -> List[Tensor]:
        growing = max(0, min(steps, reach - carried))  # the first steps reach all slots so far
        windows = [slots_GCE[:, : carried + t].transpose(1, 2) for t in range(growing)]
        if growing < steps:
            first = carried + growing - reach
            windows += slots_GCE[:, first : carried + steps - 1].unfold(1, reach, 1).unbind(1)
        return windows


class EncoderSlots(NamedTuple):
    """One layer's keys and values of the encoder's output, in the compute type.

    Attributes:
        padding_BC: True where the source is padded, as it was given.
        padding_G1C: the same for each head.
    """

    keys_GCE: Tensor
    values_GCE: Tensor
    padding_BC: Optional[Tensor]
    padding_G1C: Optional[Tensor]


def encoder_slots(context: EncoderContext, sizes: Sizes, dtype: torch.dtype) -> EncoderSlots:
    """A layer's keys and values of the encoder's output, head by head."""
    keys, values = (x.to(dtype).permute(1, 2, 0, 3).reshape(sizes.G, -1, sizes.E) for x in context[:2])
    padding = context.padding_BC
    return EncoderSlots(
        keys, values, padding, None if padding is None else padding.repeat_interleave(sizes.H, 0)[:, None]
    )


def pieces(steps: int, streams: int, device: torch.device) -> List[slice]:
    """Slices of ``range(steps)``, of about ``PROJECTION_ROWS`` rows each."""
    size = max(1, (PROJECTION_ROWS if device.type == "cpu" else GPU_PROJECTION_ROWS) // streams)
    return [slice(first, min(first + size, steps)) for first in range(0, steps, size)]
