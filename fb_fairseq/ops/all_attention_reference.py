"""The all-attention layer slot by slot, to be read beside the paper (arXiv 1907.01470, §4.2, Eq. 10–14; §5.3)."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fb_fairseq.ops.all_attention import AllAttentionWeights
from fb_fairseq.ops.attention import Positions
from fb_fairseq.ops.layers import Affine, Projection, layer_norm, linear


class AllAttentionReference(NamedTuple):
    """An all-attention layer, without dropout.

    Attributes:
        layer: its own parameters.
        projection: its keys and values, with their norm.
        positions: the relative positions of the memory.
        heads: H.
        normalize_before: pre-norm; else post-norm.
    """

    layer: AllAttentionWeights
    projection: Projection
    positions: Positions
    heads: int
    normalize_before: bool

    def run(self, x_TBD: Tensor, carried_CBD: Tensor, span: int) -> Tensor:
        """Run the layer over a block: one stream, one step, one head, one slot at a time.

        Args:
            x_TBD: the layer's inputs at the steps of the block.
            carried_CBD: its inputs at the C steps before the block, oldest first.
            span: how many steps back it attends, S.

        Returns:
            The layer's outputs [T, B, D].
        """
        streams = []
        for b in range(x_TBD.shape[1]):
            inputs = torch.cat([carried_CBD[:, b], x_TBD[:, b]])
            past = [layer_norm(x_D, self.projection.norm) for x_D in inputs]
            steps = []
            for t, x_D in enumerate(x_TBD[:, b]):
                context = past[: len(carried_CBD) + t][-span:]  # the steps before this one
                steps.append(self.step(x_D, context))
            streams.append(torch.stack(steps))
        return torch.stack(streams, 1)

    def step(self, x_D: Tensor, context: list[Tensor]) -> Tensor:
        """Run the layer over one step of one stream, [D] to [D].

        Args:
            x_D: the layer's input.
            context: its inputs [D] at the steps before, oldest first, normalised as ``projection`` requires.
        """
        layer, pre = self.layer, self.normalize_before
        width = layer.query.weight.shape[0] // self.heads
        query = linear(layer_norm(x_D, layer.attn_norm) if pre else x_D, layer.query)
        attended = []
        for h in range(self.heads):
            own = slice(h * width, (h + 1) * width)
            if layer.variant == "head-split" and h >= self.heads // 2:  # attends to persistent vectors only
                attended.append(attend(query[own], vectors(layer, h - self.heads // 2)))
                continue
            slots = self.context_slots(context, h, own)
            if layer.variant == "all-attn" and layer.persistent is not None:
                slots += vectors(layer, h)
            attended.append(attend(query[own], slots))
            if layer.variant == "attn-split":
                attended[h] = attended[h] + attend(query[own], vectors(layer, h))
        attended_D = torch.cat(attended)
        if layer.variant == "single-head":
            attended_D = attended_D + attend(query, vectors(layer, 0))
        x_D = add_norm(x_D, linear(attended_D, layer.out), layer.attn_norm, pre)
        if layer.variant == "ff-attn":
            query = layer_norm(x_D, layer.persistent_norm) if pre else x_D
            x_D = add_norm(x_D, attend(query, vectors(layer, 0)), layer.persistent_norm, pre)
        return x_D

    def context_slots(self, context: list[Tensor], h: int, own: slice) -> list["Slot"]:
        """The slots of the steps before, for head h, with relative positions: k + u and v + w (Eq. 4).

        ``own``: the head's part of keys and values.
        """
        mask_HS = self.layer.span_mask_HS
        slots = []
        for distance, past_D in zip(range(len(context), 0, -1), context):
            key_E = linear(past_D, self.projection.key)[own]
            value_E = linear(past_D, self.projection.value)[own]
            if self.positions.key_SE is not None:
                key_E = key_E + self.positions.key_SE[distance - 1]
            if self.positions.value_SE is not None:
                value_E = value_E + self.positions.value_SE[distance - 1]
            slots.append(Slot(key_E, value_E, 1.0 if mask_HS is None else mask_HS[h, distance - 1]))
        return slots


class Slot(NamedTuple):
    """A key, its value, and the soft mask of the head's adaptive span."""

    key_E: Tensor
    value_E: Tensor
    mask: Tensor | float = 1.0


def vectors(layer: AllAttentionWeights, group: int) -> list[Slot]:
    """A group's persistent vectors, k = sqrt(E) k' and v = sqrt(N) v' (§5.1)."""
    keys_NE, values_NE = layer.persistent.key_UNE[group], layer.persistent.value_UNE[group]
    N, E = keys_NE.shape
    return [Slot(math.sqrt(E) * key_E, math.sqrt(N) * value_E) for key_E, value_E in zip(keys_NE, values_NE)]


def attend(q_E: Tensor, slots: list[Slot]) -> Tensor:
    """``Σ mask exp(q · k / sqrt(E)) v / Σ mask exp(q · k / sqrt(E))``; zero without slots."""
    exponentials = [slot.mask * torch.exp(q_E @ slot.key_E / math.sqrt(len(q_E))) for slot in slots]
    result = torch.zeros_like(q_E)
    for exponential, slot in zip(exponentials, slots):
        result = result + exponential / sum(exponentials) * slot.value_E
    return result


def add_norm(x_D: Tensor, sublayer_D: Tensor, norm: Affine, normalize_before: bool) -> Tensor:
    """Add a sublayer's output to its input, and with post-norm normalise the sum (Eq. 6)."""
    return x_D + sublayer_D if normalize_before else layer_norm(x_D + sublayer_D, norm)
