"""A step's attention over the memory, or over an encoder's output, for queries of all streams and heads.

A program serves one stream and head, and a part of its slots. Sixteen equal rows of queries bring the products to the
tensor cores. No weights are recorded: the backward pass (``attention_backward.py``) computes them again. The
mathematics is that of ``fb_fairseq.ops.attention.step_attention``. Arguments of all kernels: see ``products.py``.
"""

import triton
import triton.language as tl

NO_SCORE = tl.constexpr(-1e30)  # span masks at or below it are out of reach
ROWS = tl.constexpr(16)  # the least that a product on tensor cores takes

# Triton compiles a kernel again for each pattern of values that are divisible by 16. These change from step to step.
CHANGING = ["n", "first", "slots", "S", "keep_row", "pad_row", "d_scores", "kept_out"]


@triton.jit
def places(c, n, span, seen):
    """The slots c that are there, and their distances from the query. The newest is the last of n; on a ring, where
    step t is in slot t mod ``span``, that of the last of the steps ``seen`` so far.
    """
    there = c < n
    distance = n - c
    if seen is not None:
        steps = tl.load(seen).to(tl.int32)
        there = there & (c < steps)
        distance = (steps - 1 - c) % span + 1
    return there, distance


@triton.jit
def rows_of(table, S, distance, e, both, E: tl.constexpr):
    """Position embeddings [BC, BE] of slots at these distances: distance 1 is the table's last row."""
    return tl.load(table + (S - distance)[:, None] * E + e[None], both, 0.0)


@triton.jit
def scored_slots(
    q16, c, keys, key_positions, log_mask, far, age, padding, seen, g, source, n, slots, first, S, pad_row, span, scale,
    e, H: tl.constexpr, E: tl.constexpr, P: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The slots c of a head, and their scores.

    Args:
        q16: the head's queries [16, BE], all the same.
        c: numbers of slots [BC], from 0 to n - 1; others are not there.
        far: with ``age``, how many steps back the stream looks.
        g, source: the head among all streams', and among those that have keys and values of their own.
        e: columns of a head [BE].
        others: see ``attend``.

    Returns:
        score: [16, BC], minus infinity for padding.
        visible: which of the slots the head sees [1, BC].
        there, distance: see ``places``.
        both, at: which entries [BC, BE] are there, and where they lie in ``keys`` and in the values.
        k, position: keys and their position embeddings [BC, BE]; the keys again where there are no positions.
    """
    there, distance = places(c, n, span, seen)
    both = there[:, None] & (e < E)[None]
    at = (source * slots + first + c[:, None]) * E + e[None]
    k = tl.load(keys + at, both, 0.0)
    position = k
    score = tl.dot(q16, tl.trans(k), input_precision=P)
    if key_positions is not None:
        position = rows_of(key_positions, S, distance, e, both, E)
        score += tl.dot(q16, tl.trans(position), input_precision=P)
    score = score.to(WIDE) * scale
    visible = there
    if log_mask is not None:
        span_mask = tl.load(log_mask + (g % H) * S + S - distance, there, 0.0).to(WIDE)
        score += span_mask[None]
        visible = visible & (span_mask > NO_SCORE)
    if age is not None:
        visible = visible & (distance <= far)
    if padding is not None:
        padded = tl.load(padding + (source // H) * pad_row + c, there, 1) != 0
        score = tl.where(padded[None], -float("inf"), score)
    return score, visible[None], there, distance, both, at, k, position


@triton.jit
def is_last(arrived, g, SPLITS: tl.constexpr):
    """Whether all other programs of a head have stored their parts. The count begins at zero again."""
    tl.debug_barrier()  # all threads have stored
    last = tl.atomic_add(arrived + g, 1, sem="acq_rel") == SPLITS - 1
    if last:
        tl.store(arrived + g, 0)
    return last


@triton.jit
def parts_at(parts, s, e, E: tl.constexpr):
    """The rows s of ``parts`` [splits x G, E], as other programs have stored them."""
    inside = (e < E)[None] & (s >= 0)[:, None]
    return tl.load(parts + s[:, None] * E + e[None], inside, 0.0, cache_modifier=".cg")


@triton.jit(do_not_specialize=CHANGING)
def attend(
    q, keys, values, key_positions, value_positions, log_mask, age, padding, keep, seen, out, lse, parts, tops,
    totals, arrived, G, n, slots, first, S, pad_row, keep_row, span, keep_scale, scale, H: tl.constexpr,
    E: tl.constexpr, PER: tl.constexpr, SPLITS: tl.constexpr, BC: tl.constexpr, BE: tl.constexpr, P: tl.constexpr,
    WIDE: tl.constexpr, STAGES: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Attention over the n slots from ``first`` on. Grid (G, splits).

    Args:
        q: queries [G, E]; keys, values: [G / PER, slots, E]: each serves PER consecutive streams.
        key_positions, value_positions: tables [S, E], log_mask: logarithms of the span masks [H, S]; all by distance,
            distance 1 last.
        age: of each stream's episode, beyond which it does not look back [B].
        padding: slots that a stream does not see [B, pad_row].
        keep: dropout mask [G, keep_row] whose last n columns belong to the slots.
        seen: the slots are a ring: number of steps so far, on the device; see ``places``.
        out: [G, E]; lse: logarithm of the sum of exponentials [G].
        parts, tops, totals: with several ``SPLITS`` (a power of two): room for what each program finds, [splits, G, E]
            and [splits, G]: sums of values and of weights, and the largest score.
        arrived: zeros [G], with several ``SPLITS``: the last program of a head to arrive adds up the parts.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
    g, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
    source = (g // H) // PER * H + g % H
    e, rows = tl.arange(0, BE), tl.arange(0, ROWS)
    same = e[None] + 0 * rows[:, None]  # the same columns in all rows
    q16 = tl.load(q + g * E + same, (e < E)[None] & (rows < ROWS)[:, None], 0.0)
    per = tl.cdiv(tl.cdiv(n, SPLITS), BC) * BC
    far = n
    if age is not None:
        far = tl.load(age + g // H)
    top = tl.full([ROWS], NO_SCORE, WIDE)
    total = tl.zeros([ROWS], WIDE)
    any_visible = tl.zeros([ROWS], tl.int32)
    attended = tl.zeros([ROWS, BE], WIDE)
    for c0 in tl.range(split * per, tl.minimum(n, split * per + per), BC, num_stages=STAGES):
        c = c0 + tl.arange(0, BC)
        score, visible, there, distance, both, at, _, _ = scored_slots(
            q16, c, keys=keys, key_positions=key_positions, log_mask=log_mask, far=far, age=age, padding=padding,
            seen=seen, g=g, source=source, n=n, slots=slots, first=first, S=S, pad_row=pad_row, span=span, scale=scale,
            e=e, H=H, E=E, P=P, WIDE=WIDE,
        )  # fmt: skip
        score = tl.where(visible, score, -float("inf"))
        any_visible = tl.maximum(any_visible, tl.max(visible.to(tl.int32), 1))
        higher = tl.maximum(top, tl.max(score, 1), propagate_nan=tl.PropagateNan.ALL)
        weight = tl.exp(score - higher[:, None])
        factor = tl.exp(top - higher)
        total = total * factor + tl.sum(weight, 1)
        top = higher
        if keep is not None:
            kept = tl.load(keep + g * keep_row + keep_row - distance, there, 0)
            weight = weight * kept.to(WIDE)[None] * keep_scale
        v = tl.load(values + at, both, 0.0)
        attended = tl.dot(weight.to(v.dtype), v, attended * factor[:, None], input_precision=P)
        if value_positions is not None:
            position = rows_of(value_positions, S, distance, e, both, E)
            attended = tl.dot(weight.to(v.dtype), position, attended, input_precision=P)
    row = (rows == 0)[:, None] & (e < E)[None]
    # Scores of the visible slots        total  top              result
    # some are finite                    > 0    the largest      the mean of values
    # there are none                     0      NO_SCORE         zero
    # all are minus infinity (padding)   0      minus infinity   not a number
    top = tl.where((total == 0) & (any_visible > 0), -float("inf"), top)
    if SPLITS == 1:
        total = tl.where((total == 0) & (any_visible == 0), 1.0, total)
        attended = attended / total[:, None]
        tl.store(out + g * E + same, attended.to(out.dtype.element_ty), row)
        tl.store(lse + g + 0 * rows, top + tl.log(total), rows == 0)
    else:
        at = split * G + g
        tl.store(parts + at * E + same, attended, row)
        tl.store(tops + at + 0 * rows, top, rows == 0)
        tl.store(totals + at + 0 * rows, total, rows == 0)
        if is_last(arrived, g, SPLITS):
            s = tl.arange(0, SPLITS) * G + g
            each_top = tl.load(tops + s, cache_modifier=".cg")
            highest = tl.max(each_top, 0)
            factor = tl.exp(each_top - highest)
            whole = tl.sum(factor * tl.load(totals + s, cache_modifier=".cg"), 0)
            # As above; a program that has seen minus infinities alone has stored such a top.
            whole = tl.where((whole == 0) & (tl.min(each_top, 0) > -float("inf")), 1.0, whole)
            part = parts_at(parts, s, e, E)
            tl.store(out + g * E + e, (tl.sum(factor[:, None] * part, 0) / whole).to(out.dtype.element_ty), e < E)
            tl.store(lse + g, highest + tl.log(whole))
