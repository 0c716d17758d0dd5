"""A step's memories: merged, projected to keys and values, and their gradients.

Arguments that are not explained here: see ``products.py``.
"""

import triton
import triton.language as tl

from fb_fairseq.ops.feedback.triton.products import EPS, first_column_tile, normed_part, statistics
from fb_fairseq.ops.feedback.triton.products_backward import scaled_part


@triton.jit
def merged(x, mix, r, k, both, m, x_layer, A: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr):
    """Some columns of memory m: ``Σ_a mix[m, a] x^a`` (v3 §3.3, Eq. 1).

    Args:
        x, mix, x_layer: see ``remember``; there are A representations.
        r, k, both: rows [BM], columns [BK], and which entries [BM, BK] are there.
        m: number of the memory.

    Returns:
        [BM, BK], in the type ``WIDE``.
    """
    total = tl.load(mix + m * A).to(WIDE) * tl.load(x + r[:, None] * D + k[None], both, 0.0).to(WIDE)
    for a in tl.static_range(1, A):
        share = tl.load(mix + m * A + a).to(WIDE)
        total += share * tl.load(x + a * x_layer + r[:, None] * D + k[None], both, 0.0).to(WIDE)
    return total


@triton.jit(do_not_specialize=["slot", "slots", "span"])
def remember(
    x, mix, norm_weight, norm_bias, key_weight, value_weight, key_bias, value_bias, memory, keys, values, seen, B,
    x_layer, memory_stride, weight_stride, bias_stride, slot, slots, span, A: tl.constexpr, K: tl.constexpr,
    PROJECTIONS: tl.constexpr, D: tl.constexpr, H: tl.constexpr, E: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, P: tl.constexpr, WIDE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Merge a step's representations to memories, and write their keys and values to a slot.

    The 2 H E columns are keys, then values. Grid: tiles of rows, tiles of columns, sets of keys and values.

    Args:
        x: A representations, [B, D] each, ``x_layer`` apart.
        mix: shares of the representations in each memory, [K, A].
        norm_weight, norm_bias: [PROJECTIONS, D]; None: memories are projected as they are.
        key_weight, value_weight: [H E, D] for each projection, ``weight_stride`` apart.
        key_bias, value_bias: [H E] for each projection, ``bias_stride`` apart; None: there are none.
        memory: where the memories [B, D] are stored, ``memory_stride`` apart.
        keys, values: [I, B, H, slots, E]: I sets.
        slot: the slot; on a ring without effect.
        seen: the slots are a ring: number of steps so far, on the device. Step t is in slot t mod ``span``.
        K: number of memories: 1, or one for each set.
        PROJECTIONS: number of projections: 1, or one for each set.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    i = tl.program_id(2).to(tl.int64)
    m = i if K > 1 else 0
    p = i if PROJECTIONS > 1 else 0
    there = r < B
    store = first_column_tile()
    if K == 1:
        store = store & (i + tl.zeros([1], tl.int64) == 0)
    mean = tl.zeros([BM], WIDE)
    squares = tl.zeros([BM], WIDE)
    if norm_weight is not None:
        for k0 in range(0, D, BK):
            k = k0 + tl.arange(0, BK)
            mean += tl.sum(merged(x, mix, r, k, there[:, None] & (k < D)[None], m, x_layer, A, D, WIDE), 1)
        mean = mean / D
        for k0 in range(0, D, BK):
            k = k0 + tl.arange(0, BK)
            both = there[:, None] & (k < D)[None]
            part = merged(x, mix, r, k, both, m, x_layer, A, D, WIDE) - mean[:, None]
            squares += tl.sum(tl.where(both, part * part, 0.0), 1)
    rstd = 1 / tl.sqrt(squares / D + EPS)
    total = tl.zeros([BM, BN], WIDE)
    X: tl.constexpr = H * E
    Z: tl.constexpr = 2 * X
    for k0 in range(0, D, BK):
        k = k0 + tl.arange(0, BK)
        both = there[:, None] & (k < D)[None]
        part = merged(x, mix, r, k, both, m, x_layer, A, D, WIDE)
        tl.store(memory + m * memory_stride + r[:, None] * D + k[None], part.to(memory.dtype.element_ty), both & store)
        if norm_weight is not None:
            part = normed_part(part, k, mean, rstd, norm_weight + p * D, norm_bias + p * D, D, WIDE)
        inside = (k < D)[None]
        w = tl.load(key_weight + p * weight_stride + n[:, None] * D + k[None], (n < X)[:, None] & inside, 0.0)
        w += tl.load(
            value_weight + p * weight_stride + (n - X)[:, None] * D + k[None],
            ((n >= X) & (n < Z))[:, None] & inside,
            0.0,
        )
        total = tl.dot(part.to(w.dtype), tl.trans(w), total, input_precision=P)
    if key_bias is not None:
        total += tl.load(key_bias + p * bias_stride + n, n < X, 0.0).to(WIDE)[None]
        total += tl.load(value_bias + p * bias_stride + n - X, (n >= X) & (n < Z), 0.0).to(WIDE)[None]
    if seen is not None:
        slot = (tl.load(seen) % span).to(tl.int32)
    at = (((i * B + r[:, None]) * H + ((n % X) // E)[None]) * slots + slot) * E + (n % E)[None]
    both = there[:, None] & (n < Z)[None]
    tl.store(keys + at, total.to(keys.dtype.element_ty), both & (n < X)[None])
    tl.store(values + at, total.to(values.dtype.element_ty), both & (n >= X)[None])


@triton.jit
def memory_backward(
    d_normed, memory, norm_weight, d_memory, B, set_stride, memory_stride, d_memory_stride, K: tl.constexpr,
    SETS: tl.constexpr, PROJECTIONS: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
    WIDE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Gradients of a step's memories, from those of their normed values. Grid: tiles of rows, memories.

    Args:
        d_normed: for each set of keys and values [B, D], ``set_stride`` apart.
        memory: the memories [B, D], ``memory_stride`` apart.
        norm_weight: [PROJECTIONS, D]; None: there is no norm.
        d_memory: written: their gradients [B, D], ``d_memory_stride`` apart.
        SETS: number of sets of keys and values.
        K, PROJECTIONS: see ``remember``.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    m = tl.program_id(1).to(tl.int64)
    there = r < B
    mean = tl.zeros([BM], WIDE)
    rstd = tl.zeros([BM], WIDE)
    own = memory + m * memory_stride
    if norm_weight is not None:
        mean, rstd = statistics(own, r, there, D, BM, BK, WIDE)
    for j in tl.static_range(1 if K > 1 else SETS):
        i = m if K > 1 else j
        p = i if PROJECTIONS > 1 else 0
        summed = tl.zeros([BM], WIDE)
        along = tl.zeros([BM], WIDE)
        if norm_weight is not None:
            for k0 in range(0, D, BK):
                k = k0 + tl.arange(0, BK)
                both = there[:, None] & (k < D)[None]
                d = tl.load(d_normed + i * set_stride + r[:, None] * D + k[None], both, 0.0).to(WIDE)
                hat, scaled = scaled_part(d, own, r, k, both, mean, rstd, norm_weight + p * D, D, WIDE)
                summed += tl.sum(scaled, 1)
                along += tl.sum(scaled * hat, 1)
        for k0 in range(0, D, BK):
            k = k0 + tl.arange(0, BK)
            both = there[:, None] & (k < D)[None]
            at = r[:, None] * D + k[None]
            d = tl.load(d_normed + i * set_stride + at, both, 0.0).to(WIDE)
            if norm_weight is not None:
                hat, scaled = scaled_part(d, own, r, k, both, mean, rstd, norm_weight + p * D, D, WIDE)
                d = rstd[:, None] * (scaled - summed[:, None] / D - hat * (along[:, None] / D))
            result = d_memory + m * d_memory_stride + at
            if j > 0:
                d += tl.load(result, both, 0.0).to(WIDE)
            tl.store(result, d.to(d_memory.dtype.element_ty), both)
