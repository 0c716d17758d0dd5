"""The all-attention layer slot by slot, to be read beside the paper (arXiv 1907.01470, §4.2, Eq. 10–14; §5.3)."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fb_fairseq.ops.all_attention import AllAttentionWeights
from fb_fairseq.ops.attention import Positions
from fb_fairseq.ops.layers import Affine, Projection, layer_norm, linear


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
    """Run a layer over a block, without dropout: one stream, one step, one head, one slot at a time.

    Args:
        x_TBD: the layer's inputs at the steps of the block.
        carried_CBD: its inputs at the C steps before the block, oldest first.
        heads: H.
        span: how many steps back it attends, S.
        normalize_before: pre-norm; else post-norm.

    Returns:
        The layer's outputs [T, B, D].
    """
    streams = []
    for b in range(x_TBD.shape[1]):
        past = [layer_norm(x_D, projection.norm) for x_D in torch.cat([carried_CBD[:, b], x_TBD[:, b]])]
        steps = []
        for t, x_D in enumerate(x_TBD[:, b]):
            context = past[: len(carried_CBD) + t][-span:]  # the steps before this one
            steps.append(step(x_D, context, layer, projection, positions, heads, normalize_before))
        streams.append(torch.stack(steps))
    return torch.stack(streams, 1)


def step(
    x_D: Tensor,
    context: list[Tensor],
    layer: AllAttentionWeights,
    projection: Projection,
    positions: Positions,
    heads: int,
    normalize_before: bool,
) -> Tensor:
    """Run a layer over one step of one stream, [D] to [D]. ``context``: the layer's inputs [D] at the steps before,
    oldest first, normalised as ``projection`` requires.
    """
    width = layer.query.weight.shape[0] // heads
    query = linear(layer_norm(x_D, layer.attn_norm) if normalize_before else x_D, layer.query)
    attended = []
    for h in range(heads):
        q_E = query[h * width : (h + 1) * width]
        if layer.variant == "head-split" and h >= heads // 2:  # this head attends to persistent vectors only
            attended.append(attend(q_E, vectors(layer, h - heads // 2)))
            continue
        slots = context_slots(context, layer, projection, positions, h, width)
        if layer.variant == "all-attn" and layer.persistent is not None:
            slots += vectors(layer, h)
        attended.append(attend(q_E, slots))
        if layer.variant == "attn-split":
            attended[h] = attended[h] + attend(q_E, vectors(layer, h))
    attended_D = torch.cat(attended)
    if layer.variant == "single-head":
        attended_D = attended_D + attend(query, vectors(layer, 0))
    x_D = add_norm(x_D, linear(attended_D, layer.out), layer.attn_norm, normalize_before)
    if layer.variant == "ff-attn":
        query = layer_norm(x_D, layer.persistent_norm) if normalize_before else x_D
        x_D = add_norm(x_D, attend(query, vectors(layer, 0)), layer.persistent_norm, normalize_before)
    return x_D


class Slot(NamedTuple):
    """A key, its value, and the soft mask of the head's adaptive span."""

    key_E: Tensor
    value_E: Tensor
    mask: Tensor | float = 1.0


def context_slots(
    context: list[Tensor], layer: AllAttentionWeights, projection: Projection, positions: Positions, h: int, width: int
) -> list[Slot]:
    """The slots of the steps before, for head h of this width: k + u and v + w with relative positions (Eq. 4)."""
    own = slice(h * width, (h + 1) * width)
    slots = []
    for distance, past_D in zip(range(len(context), 0, -1), context):
        key_E, value_E = linear(past_D, projection.key)[own], linear(past_D, projection.value)[own]
        if positions.key_SE is not None:
            key_E = key_E + positions.key_SE[distance - 1]
        if positions.value_SE is not None:
            value_E = value_E + positions.value_SE[distance - 1]
        mask = 1.0 if layer.span_mask_HS is None else layer.span_mask_HS[h, distance - 1]
        slots.append(Slot(key_E, value_E, mask))
    return slots


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
