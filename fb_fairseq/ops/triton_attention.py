"""One step's attention as a single Triton kernel each way: scores with relative positions, spans, softmax, values.

It reads every key and value once. The mathematics is that of ``attention.step_attention``. Whatever is indexed by
distance is aligned at its end: distance 1 is the last column or row, distance d the d-th from the end. Shape suffixes:
see ``fb_fairseq/ops/__init__.py``.
"""

from typing import Dict, NamedTuple, Optional

import torch
import triton
import triton.language as tl
from torch import Tensor

from fb_fairseq.ops.attention import Positions, span_terms
from fb_fairseq.ops.layers import Dropout, at_least_fp32

# Slots that a program reads at a time, and numbers: more of either do not fit into its registers.
MAX_BLOCK_C, MAX_BLOCK = 64, 4096
NO_SCORE = tl.constexpr(-1e30)  # span masks at or below it are out of reach


class Slots(NamedTuple):
    """The slots that a step's queries attend to.

    Attributes:
        keys_GCE, values_GCE: views of the slots, each vector contiguous; newest last, or with ``seen_1`` a ring.
        heads: H.
        key_positions_SE, value_positions_SE: relative position embeddings, by distance.
        log_mask_HS: logarithms of the span masks, by distance; ``NO_SCORE`` or less where a head does not reach.
        padding_BC: True for slots that a stream does not see.
        reach_B: how many steps back each stream reaches.
        seen_1: number of steps so far, on the device: step t is in slot t mod C, and the last C steps are seen. None:
            all slots are filled.
    """

    keys_GCE: Tensor
    values_GCE: Tensor
    heads: int
    key_positions_SE: Optional[Tensor] = None
    value_positions_SE: Optional[Tensor] = None
    log_mask_HS: Optional[Tensor] = None
    padding_BC: Optional[Tensor] = None
    reach_B: Optional[Tensor] = None
    seen_1: Optional[Tensor] = None


@triton.jit
def place(start, C, seen, BLOCK_C: tl.constexpr):
    """Slots from ``start`` on, which of them are filled, and their distances from the query."""
    c = start + tl.arange(0, BLOCK_C)
    filled, newest = C, C - 1
    if seen is not None:
        total = tl.load(seen).to(tl.int32)
        filled = tl.minimum(total, C)
        newest = (total + C - 1) % C
    distance = (newest - c + C) % C + 1
    return c, c < filled, distance


# Triton compiles a kernel again for each pattern of values that are divisible by 16. These change from step to step.
CHANGING = ["C", "S", "P", "p", "keep", "reach", "d_score"]


@triton.jit(do_not_specialize=CHANGING)
def forward_kernel(
    q, k, v, key_positions, value_positions, log_mask, padding, reach, keep, seen, scores, p, out, C,
    q_row, k_row, k_slot, v_row, v_slot, p_row, out_row, keep_row, padding_row, mask_row, P, S,
    keep_S, mask_S, scale: tl.constexpr, keep_scale: tl.constexpr, H: tl.constexpr, E: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """One program per stream and head; see ``attend``."""
    g = tl.program_id(0).to(tl.int64)  # offsets may exceed 2^31
    number = p.dtype.element_ty
    e = tl.arange(0, BLOCK_E)
    query = tl.load(q + g * q_row + e, e < E, 0.0).to(number)
    top = tl.full([BLOCK_C], NO_SCORE, number)
    total = tl.zeros([BLOCK_C], number)
    any_visible = tl.zeros([BLOCK_C], tl.int32)
    for start in range(0, C, BLOCK_C):
        c, there, distance = place(start, C, seen, BLOCK_C)
        both = there[:, None] & (e < E)[None]
        key = tl.load(k + g * k_row + c[:, None] * k_slot + e[None], both, 0.0).to(number)
        if key_positions is not None:
            key += tl.load(key_positions + (P - distance)[:, None] * E + e[None], both, 0.0).to(number)
        score = tl.sum(query[None] * key, 1) * tl.full([], scale, number)  # (as a plain number it may be fp32)
        if log_mask is not None:
            span = tl.load(log_mask + (g % H) * mask_row + mask_S - distance, there, 0.0).to(number)
            score += span
            there = there & (span > NO_SCORE)
        if reach is not None:
            there = there & (distance <= tl.load(reach + g // H))
        if padding is not None:
            padded = tl.load(padding + (g // H) * padding_row + c, there, 1) != 0
            score = tl.where(padded, -float("inf"), score)
        score = tl.where(there, score, -float("inf"))
        any_visible = tl.maximum(any_visible, there.to(tl.int32))
        tl.store(scores + g * C + c, score, c < C)
        higher = tl.maximum(top, score)
        total = total * tl.exp(top - higher) + tl.exp(score - higher)
        top = higher
    highest = tl.max(top, 0)
    whole = tl.sum(total * tl.exp(top - highest), 0)
    # Attention over nothing is zero; over minus infinities, such as an encoder of padding alone, it is not a number.
    whole = tl.where((whole == 0) & (tl.max(any_visible, 0) == 0), 1.0, whole)
    tl.debug_barrier()  # a thread may read scores that another one wrote
    attended = tl.zeros([BLOCK_E], number)
    for start in range(0, C, BLOCK_C):
        c, there, distance = place(start, C, seen, BLOCK_C)
        both = there[:, None] & (e < E)[None]
        weight = tl.exp(tl.load(scores + g * C + c, c < C, -float("inf")) - highest) / whole
        tl.store(p + g * p_row + S - distance, weight, c < C)
        if keep is not None:
            weight *= tl.load(keep + g * keep_row + keep_S - distance, there, 0).to(number) * tl.full(
                [], keep_scale, number
            )
        value = tl.load(v + g * v_row + c[:, None] * v_slot + e[None], both, 0.0).to(number)
        if value_positions is not None:
            value += tl.load(value_positions + (P - distance)[:, None] * E + e[None], both, 0.0).to(number)
        attended += tl.sum(weight[:, None] * value, 0)
    tl.store(out + g * out_row + e, attended.to(out.dtype.element_ty), e < E)


@triton.jit(do_not_specialize=CHANGING)
def backward_kernel(
    d_out, out, k, v, key_positions, value_positions, keep, p, d_score, d_q, C,
    d_out_row, out_row, k_row, k_slot, v_row, v_slot, p_row, d_score_row, d_q_row, keep_row,
    P, S, keep_S, scale: tl.constexpr, keep_scale: tl.constexpr, E: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """One program per stream and head; see ``attend_backward``."""
    g = tl.program_id(0).to(tl.int64)  # offsets may exceed 2^31
    number = p.dtype.element_ty
    e = tl.arange(0, BLOCK_E)
    d_attended = tl.load(d_out + g * d_out_row + e, e < E, 0.0).to(number)
    attended = tl.load(out + g * out_row + e, e < E, 0.0).to(number)
    mean = tl.sum(d_attended * attended, 0)  # Σ p dp, dropout and positions included
    d_query = tl.zeros([BLOCK_E], number)
    for start in range(0, C, BLOCK_C):
        c, there, distance = place(start, C, None, BLOCK_C)
        both = there[:, None] & (e < E)[None]
        value = tl.load(v + g * v_row + c[:, None] * v_slot + e[None], both, 0.0).to(number)
        if value_positions is not None:
            value += tl.load(value_positions + (P - distance)[:, None] * E + e[None], both, 0.0).to(number)
        d_weight = tl.sum(d_attended[None] * value, 1)
        if keep is not None:
            d_weight *= tl.load(keep + g * keep_row + keep_S - distance, there, 0).to(number) * tl.full(
                [], keep_scale, number
            )
        d = tl.load(p + g * p_row + S - distance, there, 0.0) * (d_weight - mean)
        tl.store(d_score + g * d_score_row + S - distance, d.to(d_score.dtype.element_ty), there)
        key = tl.load(k + g * k_row + c[:, None] * k_slot + e[None], both, 0.0).to(number)
        if key_positions is not None:
            key += tl.load(key_positions + (P - distance)[:, None] * E + e[None], both, 0.0).to(number)
        d_query += tl.sum(d[:, None] * key, 0)
    tl.store(d_q + g * d_q_row + e, (d_query * tl.full([], scale, number)).to(d_q.dtype.element_ty), e < E)


def attend(q_GE: Tensor, slots: Slots, mask: Optional[Dropout], p_GS: Tensor, out_GE: Tensor) -> None:
    """One step's attention.

    Args:
        q_GE: queries.
        mask: dropout [G, S], by distance.
        p_GS: the weights before dropout are written here, by distance; at least fp32. Slots that are not seen get 0, or
            are left as they are.
        out_GE: the attention output is written here.
    """
    keys, values = slots.keys_GCE, slots.values_GCE
    G, C, E = keys.shape
    keep, keep_scale = (None, 1.0) if mask is None else (bytes_of(mask.keep), mask.scale)
    # (Not in place of the weights: threads that share a slot would read what others have written already.)
    scores_GC = torch.empty(G, C, dtype=p_GS.dtype, device=p_GS.device)
    forward_kernel[(G,)](
        q_GE, keys, values, slots.key_positions_SE, slots.value_positions_SE, slots.log_mask_HS,
        bytes_of(slots.padding_BC), slots.reach_B, keep, slots.seen_1, scores_GC, p_GS, out_GE, C,
        q_GE.stride(0), keys.stride(0), keys.stride(1), values.stride(0), values.stride(1), p_GS.stride(0),
        out_GE.stride(0), row_stride(keep), row_stride(slots.padding_BC), row_stride(slots.log_mask_HS),
        position_rows(slots), p_GS.shape[1], width(keep), width(slots.log_mask_HS), scale=E**-0.5,
        keep_scale=keep_scale, H=slots.heads, E=E, **blocks(E),
    )  # fmt: skip


def attend_backward(
    d_out_GE: Tensor,
    out_GE: Tensor,
    slots: Slots,
    mask: Optional[Dropout],
    p_GS: Tensor,
    d_score_GS: Tensor,
    d_q_GE: Tensor,
) -> None:
    """The gradients of ``attend``: from that of its result to those of the scores, before their scale, and the queries.

    Args:
        d_out_GE: gradient of the result ``out_GE``.
        p_GS: the weights that ``attend`` has written.
        d_score_GS, d_q_GE: the gradients are written here.
    """
    keys, values = slots.keys_GCE, slots.values_GCE
    G, C, E = keys.shape
    keep, keep_scale = (None, 1.0) if mask is None else (bytes_of(mask.keep), mask.scale)
    backward_kernel[(G,)](
        d_out_GE, out_GE, keys, values, slots.key_positions_SE, slots.value_positions_SE, keep, p_GS, d_score_GS,
        d_q_GE, C, d_out_GE.stride(0), out_GE.stride(0), keys.stride(0), keys.stride(1), values.stride(0),
        values.stride(1), p_GS.stride(0), d_score_GS.stride(0), d_q_GE.stride(0), row_stride(keep),
        position_rows(slots), p_GS.shape[1], width(keep), scale=E**-0.5, keep_scale=keep_scale, E=E,
        **blocks(E),
    )  # fmt: skip


def attend_ring(
    query_BHE: Tensor,
    keys_CBHE: Tensor,
    values_CBHE: Tensor,
    seen_1: Tensor,
    positions: Positions,
    span_mask_HS: Optional[Tensor],
) -> Tensor:
    """One step's attention [B, H, E] over the slots of a ring. Has no gradient.

    Args:
        seen_1: number of steps so far; see ``Slots``.
        positions: relative positions, row d - 1 for distance d.
        span_mask_HS: adaptive spans, column d - 1 for distance d.
    """
    B, H, E = query_BHE.shape
    keys_GCE, values_GCE = (x.permute(1, 2, 0, 3).flatten(0, 1) for x in (keys_CBHE, values_CBHE))
    slots = Slots(
        keys_GCE,
        values_GCE,
        H,
        *(None if x is None else x.flip(0) for x in positions),
        log_mask_HS=None if span_mask_HS is None else span_terms(span_mask_HS.flip(1))[0],
        seen_1=seen_1,
    )
    q_GE = query_BHE.reshape(B * H, E)
    p_GC = torch.empty(keys_GCE.shape[:2], dtype=at_least_fp32(q_GE[:0]).dtype, device=q_GE.device)
    out_GE = torch.empty_like(q_GE)
    attend(q_GE, slots, None, p_GC, out_GE)
    return out_GE.view(B, H, E)


def largest_error(device: torch.device) -> float:
    """The largest error of the kernels' results on a small step, compared with torch's."""
    G, C, E = 2, 5, 16
    q_GE, d_out_GE = (torch.arange(G * E, device=device).view(G, E).float().add(shift).cos() for shift in (0, 1))
    keys_GCE, values_GCE = (torch.arange(G * C * E, device=device).view(G, C, E).mul(s).cos() for s in (0.7, 1.3))
    p_GC, d_score_GC = torch.zeros(G, C, device=device), torch.zeros(G, C, device=device)
    out_GE, d_q_GE = torch.zeros_like(q_GE), torch.zeros_like(q_GE)
    slots = Slots(keys_GCE, values_GCE, heads=1)
    attend(q_GE, slots, None, p_GC, out_GE)
    attend_backward(d_out_GE, out_GE, slots, None, p_GC, d_score_GC, d_q_GE)
    p_expected_GC = torch.softmax((keys_GCE * q_GE[:, None]).sum(-1) * E**-0.5, -1)
    dp_GC = (values_GCE * d_out_GE[:, None]).sum(-1)
    d_expected_GC = p_expected_GC * (dp_GC - (p_expected_GC * dp_GC).sum(-1, keepdim=True))
    errors = (
        out_GE - (p_expected_GC[..., None] * values_GCE).sum(1),
        d_score_GC - d_expected_GC,
        d_q_GE - (d_expected_GC[..., None] * keys_GCE).sum(1) * E**-0.5,
    )
    return max(error.abs().max().item() for error in errors)


def blocks(E: int) -> Dict[str, int]:
    """The sizes of the blocks that a program works on."""
    width = triton.next_power_of_2(E)
    return {"BLOCK_C": max(1, min(MAX_BLOCK_C, MAX_BLOCK // width)), "BLOCK_E": width}


def bytes_of(x: Optional[Tensor]) -> Optional[Tensor]:
    """A tensor of bools as bytes, which is what Triton reads."""
    return None if x is None else x.view(torch.uint8)


def row_stride(x: Optional[Tensor]) -> int:
    """Distance of a matrix's rows in memory; 0 if there is none."""
    return 0 if x is None else x.stride(0)


def width(x: Optional[Tensor]) -> int:
    """Number of a matrix's columns; 0 if there is none."""
    return 0 if x is None else x.shape[1]


def position_rows(slots: Slots) -> int:
    """Number of rows of the position tables; 0 without positions."""
    return max(0 if table is None else len(table) for table in (slots.key_positions_SE, slots.value_positions_SE))
