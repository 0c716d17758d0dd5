"""The all-attention layer slot by slot, to be checked against the paper by eye (All-attention §4.2, Eq. 10–14; §5.3).

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

import math
from typing import List

import torch
from torch import Tensor

from fb_fairseq.ops.all_attention.block import AllAttentionWeights
from fb_fairseq.ops.attention import Positions
from fb_fairseq.ops.layers import Projection, layer_norm, linear


def all_attention_layer_reference(
    x_TBD: Tensor,
    carried_CBD: Tensor,
    layer: AllAttentionWeights,
    projection: Projection,
    positions: Positions,
    heads: int,
    span: int,
    normalize_before: bool,
) -> Tensor:
    """A layer on a block, [T, B, D] to [T, B, D], without dropout: one stream, one step, one head, one slot at a time.

    Args:
        carried_CBD: the layer's inputs at the C steps before the block, oldest first.
    """
    streams = []
    for b in range(x_TBD.shape[1]):
        past = [layer_norm(x_D, projection.norm) for x_D in torch.cat([carried_CBD[:, b], x_TBD[:, b]])]
        steps = []
        for t, x_D in enumerate(x_TBD[:, b]):
            context = past[: len(carried_CBD) + t][-span:]  # what precedes the step
            steps.append(step(x_D, context, layer, projection, positions, heads, normalize_before))
        streams.append(torch.stack(steps))
    return torch.stack(streams, 1)


def step(x_D, context, layer, projection, positions, heads, normalize_before) -> Tensor:
    width = layer.query.weight.shape[0] // heads
    query = linear(layer_norm(x_D, layer.attn_norm) if normalize_before else x_D, layer.query)
    N = 0 if layer.persistent is None else layer.persistent.key_UNE.shape[1]
    attended = []
    for h in range(heads):
        own = slice(h * width, (h + 1) * width)
        q_E = query[own]
        slots: List[Slot] = []
        for distance, past_D in zip(range(len(context), 0, -1), context):
            if layer.variant == "head-split" and h >= heads // 2:
                continue  # this head attends to persistent vectors only
            key_E, value_E = linear(past_D, projection.key)[own], linear(past_D, projection.value)[own]
            if positions.key_SE is not None:
                key_E = key_E + positions.key_SE[distance - 1]
            if positions.value_SE is not None:
                value_E = value_E + positions.value_SE[distance - 1]
            mask = 1.0 if layer.span_mask_HS is None else layer.span_mask_HS[h, distance - 1]
            slots.append(Slot(key_E, value_E, mask))
        if layer.variant == "head-split":
            attended.append(attend(q_E, slots if h < heads // 2 else vectors(layer, h - heads // 2)))
        elif layer.variant == "all-attn":
            attended.append(attend(q_E, slots + (vectors(layer, h) if N else [])))
        elif layer.variant == "attn-split":
            attended.append(attend(q_E, slots) + attend(q_E, vectors(layer, h)))
        else:
            attended.append(attend(q_E, slots))
    attended_D = torch.cat(attended)
    if layer.variant == "single-head":
        attended_D = attended_D + attend(query, vectors(layer, 0))
    x_D = add_norm(x_D, linear(attended_D, layer.out), layer.attn_norm, normalize_before)
    if layer.variant == "ff-attn":
        query = layer_norm(x_D, layer.persistent_norm) if normalize_before else x_D
        x_D = add_norm(x_D, attend(query, vectors(layer, 0)), layer.persistent_norm, normalize_before)
    return x_D


class Slot:
    """A key, a value, and how much of the slot the span lets through."""

    def __init__(self, key_E: Tensor, value_E: Tensor, mask=1.0):
        self.key_E, self.value_E, self.mask = key_E, value_E, mask


def vectors(layer: AllAttentionWeights, group: int) -> List[Slot]:
    """A group's persistent vectors: k = sqrt(E) k', v = sqrt(N) v'."""
    keys_NE, values_NE = layer.persistent.key_UNE[group], layer.persistent.value_UNE[group]
    N, E = keys_NE.shape
    return [Slot(math.sqrt(E) * key_E, math.sqrt(N) * value_E) for key_E, value_E in zip(keys_NE, values_NE)]


def attend(q_E: Tensor, slots: List[Slot]) -> Tensor:
    """``Σ mask exp(q · k / sqrt(E)) v / Σ mask exp(q · k / sqrt(E))``; over nothing zero."""
    exponentials = [slot.mask * torch.exp(q_E @ slot.key_E / math.sqrt(len(q_E))) for slot in slots]
    result = torch.zeros_like(q_E)
    for exponential, slot in zip(exponentials, slots):
        result = result + exponential / sum(exponentials) * slot.value_E
    return result


def add_norm(x_D: Tensor, sublayer_D: Tensor, norm, normalize_before: bool) -> Tensor:
    """Eq. 6; with pre-norm the norm stands before the sublayer."""
    return x_D + sublayer_D if normalize_before else layer_norm(x_D + sublayer_D, norm)
