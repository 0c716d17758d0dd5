"""Gradients through the linear maps of ``products.py``, where the legend of the arguments is, too."""

import triton
import triton.language as tl

from fb_fairseq.ops.feedback.triton.activations import derivative
from fb_fairseq.ops.feedback.triton.products import first_column_tile


@triton.jit
def scaled_part(d_normed, x, r, k, both, mean, rstd, norm_weight, D: tl.constexpr, WIDE: tl.constexpr):
    """Columns k of a norm's normalised input, and of its result's gradient ``d_normed`` times its weight.

    Args:
        d_normed: these columns.
        x: the norm's input [B, D], of which r are the rows; ``both``: which entries there are.
        mean, rstd: its mean and 1 / standard deviation, of these rows.
    """
    weight = tl.load(norm_weight + k, k < D, 0.0).to(WIDE)
    xs = tl.load(x + r[:, None] * D + k[None], both, 0.0).to(WIDE)
    hat = tl.where(both, (xs - mean[:, None]) * rstd[:, None], 0.0)
    return hat, d_normed * weight[None]


@triton.jit
def incoming(
    base, d_normed, d_memory, mix, r, k, both, memory_stride, mix_stride, PRE: tl.constexpr, K: tl.constexpr,
    D: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Columns k of the gradient of a sublayer's result, but for what comes through the norm above (pre-norm).

    Args:
        others: see ``back_product``; with post-norm ``d_normed`` is a part of the gradient.
    """
    d = tl.load(base + r[:, None] * D + k[None], both, 0.0).to(WIDE)
    if d_normed is not None and not PRE:
        d += tl.load(d_normed + r[:, None] * D + k[None], both, 0.0).to(WIDE)
    if d_memory is not None:
        for m in tl.static_range(K):
            share = tl.load(mix + m * mix_stride).to(WIDE)
            d += share * tl.load(d_memory + m * memory_stride + r[:, None] * D + k[None], both, 0.0).to(WIDE)
    return d


@triton.jit
def back_product(
    base, d_normed, x, norm_weight, mean_in, rstd_in, d_memory, mix, weight, hidden, keep_residual, keep_hidden,
    d_sum, d_norm_out, d_branch, out, B, N, memory_stride, mix_stride, scale_residual, scale_hidden,
    PRE: tl.constexpr, K: tl.constexpr, D: tl.constexpr, KIND: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, P: tl.constexpr, WIDE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Backward pass from a sublayer's result to the input of its last linear map.

    The gradient of the sublayer's result is the sum of

    - ``base``,
    - with ``d_memory``, the gradients of the step's memories, each times the result's share in it,
    - what the sublayer above adds: with pre-norm ``norm'(d_normed)``, with post-norm ``d_normed``.

    With post-norm it goes through this sublayer's own norm. It is then the gradient of the sum of the residual
    connection, ``d_sum``; after dropout it is ``d_branch``, and ``out [B, N] = act'(hidden) dropout(d_branch W)``.

    Args:
        base: [B, D].
        d_normed: [B, D]; None: nothing is above.
        x, norm_weight, mean_in, rstd_in: the norm that gradients go through: its input [B, D], weight [D], mean and
            1 / standard deviation [B]. None: there is none (pre-norm, and nothing is above).
        d_memory: K gradients [B, D], ``memory_stride`` apart; None: no memory has a share of the result.
        mix: the K shares, ``mix_stride`` apart.
        weight: W [D, N].
        hidden: what the forward pass has recorded of the input [B, N]; None: there is no activation.
        keep_residual, scale_residual: dropout of the linear map's result [B, D].
        keep_hidden, scale_hidden: dropout of its input [B, N].
        d_sum, d_branch: where these gradients [B, D] are stored.
        d_norm_out: where the gradient of the norm's result [B, D] is stored (post-norm).
        out: the result.
        PRE: whether layers have their norms before sublayers (pre-norm).
        KIND: of the activation.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    there, first = r < B, first_column_tile()
    NORM: tl.constexpr = norm_weight is not None
    # Which gradient goes through the norm is said in both loops. A function that returns it beside ``d`` compiles to
    # other instructions (a load is shared by the loops), which no GPU has run.
    mean = tl.zeros([BM], WIDE)
    rstd = tl.zeros([BM], WIDE)
    summed = tl.zeros([BM], WIDE)
    along = tl.zeros([BM], WIDE)
    if NORM:
        mean = tl.load(mean_in + r, there, 0.0).to(WIDE)
        rstd = tl.load(rstd_in + r, there, 0.0).to(WIDE)
        for k0 in range(0, D, BK):
            k = k0 + tl.arange(0, BK)
            both = there[:, None] & (k < D)[None]
            if PRE:
                d = tl.load(d_normed + r[:, None] * D + k[None], both, 0.0).to(WIDE)
            else:
                d = incoming(base, d_normed, d_memory, mix, r, k, both, memory_stride, mix_stride, PRE, K, D, WIDE)
            hat, scaled = scaled_part(d, x, r, k, both, mean, rstd, norm_weight, D, WIDE)
            summed += tl.sum(scaled, 1)
            along += tl.sum(scaled * hat, 1)
    total = tl.zeros([BM, BN], WIDE)
    for k0 in range(0, D, BK):
        k = k0 + tl.arange(0, BK)
        both = there[:, None] & (k < D)[None]
        at = r[:, None] * D + k[None]
        d = incoming(base, d_normed, d_memory, mix, r, k, both, memory_stride, mix_stride, PRE, K, D, WIDE)
        if NORM:
            through = d
            if PRE:
                through = tl.load(d_normed + at, both, 0.0).to(WIDE)
            else:
                tl.store(d_norm_out + at, d.to(d_norm_out.dtype.element_ty), both & first)
            hat, scaled = scaled_part(through, x, r, k, both, mean, rstd, norm_weight, D, WIDE)
            back = rstd[:, None] * (scaled - summed[:, None] / D - hat * (along[:, None] / D))
            if PRE:
                d += back
            else:
                d = back
        tl.store(d_sum + at, d.to(d_sum.dtype.element_ty), both & first)
        if keep_residual is not None:
            d = d * tl.load(keep_residual + at, both, 0).to(WIDE) * scale_residual
        w = tl.load(weight + k[:, None] * N + n[None], (k < D)[:, None] & (n < N)[None], 0.0)
        d = d.to(w.dtype)
        tl.store(d_branch + at, d, both & first)
        total = tl.dot(d, w, total, input_precision=P)
    both = there[:, None] & (n < N)[None]
    at = r[:, None] * N + n[None]
    if keep_hidden is not None:
        total = total * tl.load(keep_hidden + at, both, 0).to(WIDE) * scale_hidden
    if hidden is not None:
        total = total * derivative(tl.load(hidden + at, both, 0.0).to(WIDE), KIND)
    tl.store(out + at, total.to(out.dtype.element_ty), both)


@triton.jit
def product_transposed(
    a, weight, out, B, N, a_set, weight_set, out_set, INNER: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, P: tl.constexpr, WIDE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """``out [B, N] = a W``. The third dimension of the grid counts sets of matrices.

    Args:
        a: [B, INNER], sets ``a_set`` apart.
        weight: W [INNER, N], sets ``weight_set`` apart.
        out: the result, sets ``out_set`` apart.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    i = tl.program_id(2).to(tl.int64)
    there = r < B
    total = tl.zeros([BM, BN], WIDE)
    for k0 in range(0, INNER, BK):
        k = k0 + tl.arange(0, BK)
        both = there[:, None] & (k < INNER)[None]
        at = r[:, None] * INNER + k[None]
        w = tl.load(weight + i * weight_set + k[:, None] * N + n[None], (k < INNER)[:, None] & (n < N)[None], 0.0)
        xs = tl.load(a + i * a_set + at, both, 0.0)
        total = tl.dot(xs.to(w.dtype), w, total, input_precision=P)
    both = there[:, None] & (n < N)[None]
    tl.store(out + i * out_set + r[:, None] * N + n[None], total.to(out.dtype.element_ty), both)
