"""The gradients of a step's attention, for queries of all streams and heads, and for a slot that a tile has filled.

The backward pass computes the weights again from the logarithm of their sum, and leaves them, beside the gradients of
scores, for the products after a tile of steps, and for those of the slots that the tile itself has filled
(``own_slot``). Arguments of all kernels: see ``products.py``.
"""

import triton
import triton.language as tl

from fb_fairseq.ops.feedback.triton.attention import CHANGING, ROWS, is_last, parts_at, rows_of, scored_slots


@triton.jit(do_not_specialize=CHANGING)
def attend_backward(
    q, d_out, out, lse, keys, values, key_positions, value_positions, log_mask, age, padding, keep, seen, d_q, parts,
    arrived, d_scores, kept_out, scores_row, G, n, slots, first, S, pad_row, keep_row, span, keep_scale, scale,
    H: tl.constexpr, E: tl.constexpr, PER: tl.constexpr, SPLITS: tl.constexpr, BC: tl.constexpr, BE: tl.constexpr,
    P: tl.constexpr, WIDE: tl.constexpr, STAGES: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The gradient of the queries, from that of the result of ``attend``. Grid (G, splits).

    Args:
        d_out, out: the result's gradient, and the result [G, E].
        d_q: [G, E]; parts, arrived: see ``attend``.
        d_scores: the gradients of the scores before their scale, [G, n], rows ``scores_row`` apart.
        kept_out: the weights after dropout, in the same places.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
    g, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
    source = (g // H) // PER * H + g % H
    e, rows = tl.arange(0, BE), tl.arange(0, ROWS)
    row_at = g * E + e[None] + 0 * rows[:, None]
    wide = (e < E)[None] & (rows < ROWS)[:, None]
    q16 = tl.load(q + row_at, wide, 0.0)
    d16 = tl.load(d_out + row_at, wide, 0.0)
    delta = tl.sum(d16.to(WIDE) * tl.load(out + row_at, wide, 0.0).to(WIDE), 1)
    log_sum = tl.load(lse + g).to(WIDE)
    per = tl.cdiv(tl.cdiv(n, SPLITS), BC) * BC
    far = n
    if age is not None:
        far = tl.load(age + g // H)
    total = tl.zeros([ROWS, BE], WIDE)
    for c0 in tl.range(split * per, tl.minimum(n, split * per + per), BC, num_stages=STAGES):
        c = c0 + tl.arange(0, BC)
        score, visible, there, distance, both, at, k, position = scored_slots(
            q16, c, keys=keys, key_positions=key_positions, log_mask=log_mask, far=far, age=age, padding=padding,
            seen=seen, g=g, source=source, n=n, slots=slots, first=first, S=S, pad_row=pad_row, span=span, scale=scale,
            e=e, H=H, E=E, P=P, WIDE=WIDE,
        )  # fmt: skip
        weight = tl.where(visible, tl.exp(score - log_sum), 0.0)
        d_weight = tl.dot(d16, tl.trans(tl.load(values + at, both, 0.0)), input_precision=P)
        if value_positions is not None:
            by_value = rows_of(value_positions, S, distance, e, both, E)
            d_weight += tl.dot(d16, tl.trans(by_value), input_precision=P)
        d_weight = d_weight.to(WIDE)
        kept_weight = weight
        if keep is not None:
            kept = tl.load(keep + g * keep_row + keep_row - distance, there, 0).to(WIDE)[None] * keep_scale
            d_weight = d_weight * kept
            kept_weight = weight * kept
        d_score = (weight * (d_weight - delta[:, None])).to(k.dtype)
        place = g * scores_row + c[None] + 0 * rows[:, None]
        one = (rows == 0)[:, None] & there[None]
        tl.store(d_scores + place, d_score, one)
        tl.store(kept_out + place, kept_weight.to(k.dtype), one)
        total = tl.dot(d_score, k, total, input_precision=P)
        if key_positions is not None:
            total = tl.dot(d_score, position, total, input_precision=P)
    total = total * scale
    row = (rows == 0)[:, None] & (e < E)[None]
    if SPLITS == 1:
        tl.store(d_q + row_at, total.to(d_q.dtype.element_ty), row)
    else:
        tl.store(parts + split * G * E + row_at, total, row)
        if is_last(arrived, g, SPLITS):
            s = tl.arange(0, SPLITS) * G + g
            part = parts_at(parts, s, e, E)
            tl.store(d_q + g * E + e, tl.sum(part, 0).to(d_q.dtype.element_ty), e < E)


@triton.jit(do_not_specialize=["d_scores", "kept", "q", "d_out", "later", "slot", "slots"])
def own_slot(
    d_scores, kept, q, d_out, d_slots, d_kv, G, later, slot, slots, side, scores_row, row, set_stride, scale,
    H: tl.constexpr, E: tl.constexpr, L: tl.constexpr, LAYERS: tl.constexpr, BY: tl.constexpr, BE: tl.constexpr,
    WIDE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The gradient of a step's keys and values, from those that later tiles have left and from ``later`` steps.

    Grid (G, sets, 2): keys, then values. All tensors of steps begin at the step after this one.

    Args:
        d_scores, kept: what ``attend_backward`` has left at the step's slot, as ``d_scores`` and ``kept_out``:
            [G, later, L], each head ``scores_row`` numbers after the one before it, each layer ``row``.
        q, d_out: [later, L, G, E].
        d_slots: what later tiles have left of the gradients of slots, [2, sets, G, slots, E], whose halves are ``side``
            apart.
        d_kv: the result [sets, B, 2, H, E], sets ``set_stride`` apart.
        later: number of steps after this one in the tile.
        slot: the step's slot, of ``slots``.
        LAYERS: number of layers that share a set of keys and values: L, or 1.
        BY: pairs of a later step and a layer that are read at a time.
        BE: a power of two, at least E.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
    g, i, half = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    e = tl.arange(0, BE)
    total = tl.load(d_slots + half * side + ((i * G + g) * slots + slot) * E + e, e < E, 0.0).to(WIDE)
    each = tl.zeros([BY, BE], WIDE)
    for pair0 in range(0, later * LAYERS, BY):
        pair = pair0 + tl.arange(0, BY)
        there = pair < later * LAYERS
        both = there[:, None] & (e < E)[None]
        row_of_pair = pair // LAYERS * L + pair % LAYERS + (i if LAYERS < L else 0)
        at = (row_of_pair * G + g)[:, None] * E + e[None]
        if half == 0:
            weights = tl.load(d_scores + g * scores_row + row_of_pair * row, there, 0.0)
            vectors = tl.load(q + at, both, 0.0)
        else:
            weights = tl.load(kept + g * scores_row + row_of_pair * row, there, 0.0)
            vectors = tl.load(d_out + at, both, 0.0)
        each += weights.to(WIDE)[:, None] * vectors.to(WIDE)
    gathered = tl.sum(each, 0)
    if half == 0:
        gathered = gathered * scale
    total += gathered
    out = d_kv + i * set_stride + ((g // H) * 2 + half) * H * E + (g % H) * E + e
    tl.store(out, total.to(d_kv.dtype.element_ty), e < E)
