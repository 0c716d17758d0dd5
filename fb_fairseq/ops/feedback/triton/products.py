"""Linear maps of a step's rows, each one kernel with what comes before and after it.

``normed_product`` has a layer norm in its prologue, ``product_residual`` an activation and dropout in its prologue and
the residual connection in its epilogue; ``back_product`` and ``product_transposed`` are what the backward pass needs of
both. A program computes a tile of BM rows and BN columns, and goes through the inner dimension, of INNER or D numbers,
in pieces of BK. Every column tile repeats its rows' norm; the first one stores what later kernels need.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``. Matrices are contiguous; ``P`` is the precision of products of fp32,
``KIND`` the number of an activation, ``WIDE`` the type of sums.
"""

import triton
import triton.language as tl

from fb_fairseq.ops.layers import ACTIVATIONS, LAYER_NORM_EPS

EPS = tl.constexpr(LAYER_NORM_EPS)
# Activations by number: the position of their names in ``ACTIVATIONS``.
NUMBERS = {name: number for number, name in enumerate(ACTIVATIONS)}
RELU = tl.constexpr(NUMBERS["relu"])
RELU_SQUARED = tl.constexpr(NUMBERS["relu_squared"])
GELU = tl.constexpr(NUMBERS["gelu"])
GELU_TANH = tl.constexpr(NUMBERS["gelu_accurate"])
TANH = tl.constexpr(NUMBERS["tanh"])
LINEAR = tl.constexpr(NUMBERS["linear"])
# The constants below: sqrt(1/2), sqrt(2/π), 1/sqrt(2π), and 0.044715, the cubic term of the approximation of GELU by
# tanh (Hendrycks and Gimpel 2016), which is three times as large in its derivative.


@triton.jit
def tanh(x):
    """Hyperbolic tangent, which does not overflow."""
    e = tl.exp(-2 * tl.abs(x))
    y = (1 - e) / (1 + e)
    return tl.where(x < 0, -y, y)


@triton.jit
def activation(x, KIND: tl.constexpr):
    """The activation of a recorded hidden vector: for a ReLU the vector itself, which is recorded after it."""
    if KIND == RELU_SQUARED:
        positive = tl.where(x < 0, 0.0, x)  # (keeps NaN)
        x = positive * positive
    elif KIND == GELU:
        x = 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    elif KIND == GELU_TANH:
        x = 0.5 * x * (1 + tanh((x + 0.044715 * x * x * x) * 0.7978845608028654))
    elif KIND == TANH:
        x = tanh(x)
    return x


@triton.jit
def derivative(x, KIND: tl.constexpr):
    """The derivative at a recorded hidden vector."""
    slope = x * 0 + 1
    if KIND == RELU:
        slope = tl.where(x > 0, slope, slope * 0)
    elif KIND == RELU_SQUARED:
        slope = 2 * tl.where(x < 0, 0.0, x)
    elif KIND == GELU:
        slope = 0.5 * (1 + tl.erf(x * 0.7071067811865476)) + x * 0.3989422804014327 * tl.exp(-0.5 * x * x)
    elif KIND == GELU_TANH:
        t = tanh((x + 0.044715 * x * x * x) * 0.7978845608028654)
        slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 0.134145 * x * x)
    elif KIND == TANH:
        t = tanh(x)
        slope = 1 - t * t
    return slope


@triton.jit
def first_column_tile():
    """True in the program of the first column tile, [1]. (Triton 3.9's interpreter takes no scalar in a mask.)"""
    return tl.program_id(1) + tl.zeros([1], tl.int32) == 0


@triton.jit
def statistics(x, r, there, D: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr, WIDE: tl.constexpr):
    """Mean and 1 / standard deviation of rows r of x [B, D]."""
    total = tl.zeros([BM], WIDE)
    for k0 in range(0, D, BK):
        k = k0 + tl.arange(0, BK)
        total += tl.sum(tl.load(x + r[:, None] * D + k[None], there[:, None] & (k < D)[None], 0.0).to(WIDE), 1)
    mean = total / D
    squares = tl.zeros([BM], WIDE)
    for k0 in range(0, D, BK):
        k = k0 + tl.arange(0, BK)
        both = there[:, None] & (k < D)[None]
        xs = tl.load(x + r[:, None] * D + k[None], both, 0.0).to(WIDE)
        squares += tl.sum(tl.where(both, (xs - mean[:, None]) * (xs - mean[:, None]), 0.0), 1)
    return mean, 1 / tl.sqrt(squares / D + EPS)


@triton.jit
def normed_part(x, k, mean, rstd, norm_weight, norm_bias, D: tl.constexpr, WIDE: tl.constexpr):
    """Some columns of a layer norm's result."""
    weight = tl.load(norm_weight + k, k < D, 0.0).to(WIDE)
    bias = tl.load(norm_bias + k, k < D, 0.0).to(WIDE)
    return (x - mean[:, None]) * rstd[:, None] * weight[None] + bias[None]


@triton.jit
def normed_product(
    x, norm_weight, norm_bias, weight, bias, out, normed, mean_out, rstd_out, B, N,
    D: tl.constexpr, IS_RELU: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, P: tl.constexpr,
    WIDE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """``out [B, N] = norm(x) Wᵀ + b``, with a ReLU if ``IS_RELU``.

    Args:
        norm_weight, norm_bias: None: there is no norm.
        normed: where the norm's result [B, D] is stored; None: nowhere. ``mean_out``, ``rstd_out``: its statistics [B].
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    there, first = r < B, first_column_tile()
    mean = tl.zeros([BM], WIDE)
    rstd = tl.zeros([BM], WIDE)
    if norm_weight is not None:
        mean, rstd = statistics(x, r, there, D, BM, BK, WIDE)
        if mean_out is not None:
            tl.store(mean_out + r, mean, there & first)
            tl.store(rstd_out + r, rstd, there & first)
    total = tl.zeros([BM, BN], WIDE)
    for k0 in range(0, D, BK):
        k = k0 + tl.arange(0, BK)
        both = there[:, None] & (k < D)[None]
        xs = tl.load(x + r[:, None] * D + k[None], both, 0.0).to(WIDE)
        if norm_weight is not None:
            xs = normed_part(xs, k, mean, rstd, norm_weight, norm_bias, D, WIDE)
            if normed is not None:
                tl.store(normed + r[:, None] * D + k[None], xs.to(normed.dtype.element_ty), both & first)
        w = tl.load(weight + n[:, None] * D + k[None], (n < N)[:, None] & (k < D)[None], 0.0)
        total = tl.dot(xs.to(w.dtype), tl.trans(w), total, input_precision=P)
    if bias is not None:
        total += tl.load(bias + n, n < N, 0.0).to(WIDE)[None]
    if IS_RELU:
        total = tl.where(total < 0, 0.0, total)  # (keeps NaN)
    tl.store(out + r[:, None] * N + n[None], total.to(out.dtype.element_ty), there[:, None] & (n < N)[None])


@triton.jit
def product_residual(
    a, weight, bias, residual, out, keep_in, keep_out, B, N, scale_in, scale_out, INNER: tl.constexpr,
    KIND: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, P: tl.constexpr, WIDE: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """``out [B, N] = residual + dropout(f(a) Wᵀ + b)``, where f is an activation and its dropout. ``keep_in``,
    ``keep_out``: bytes of the dropout masks [B, INNER] and [B, N]; None: nothing is dropped.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    there = r < B
    total = tl.zeros([BM, BN], WIDE)
    for k0 in range(0, INNER, BK):
        k = k0 + tl.arange(0, BK)
        both = there[:, None] & (k < INNER)[None]
        xs = tl.load(a + r[:, None] * INNER + k[None], both, 0.0)
        if KIND != RELU and KIND != LINEAR:
            xs = activation(xs.to(WIDE), KIND)
        if keep_in is not None:
            xs = xs.to(WIDE) * tl.load(keep_in + r[:, None] * INNER + k[None], both, 0).to(WIDE) * scale_in
        w = tl.load(weight + n[:, None] * INNER + k[None], (n < N)[:, None] & (k < INNER)[None], 0.0)
        total = tl.dot(xs.to(w.dtype), tl.trans(w), total, input_precision=P)
    both = there[:, None] & (n < N)[None]
    at = r[:, None] * N + n[None]
    if bias is not None:
        total += tl.load(bias + n, n < N, 0.0).to(WIDE)[None]
    if keep_out is not None:
        total = total * tl.load(keep_out + at, both, 0).to(WIDE) * scale_out
    total += tl.load(residual + at, both, 0.0).to(WIDE)
    tl.store(out + at, total.to(out.dtype.element_ty), both)


@triton.jit
def norm_rows(
    x, norm_weight, norm_bias, out, mean_out, rstd_out, B, D: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
    WIDE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """``out [B, D] = norm(x)``, and its statistics [B]."""
    if PDL:
        tl.extra.cuda.gdc_wait()
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    there = r < B
    mean, rstd = statistics(x, r, there, D, BM, BK, WIDE)
    tl.store(mean_out + r, mean, there)
    tl.store(rstd_out + r, rstd, there)
    for k0 in range(0, D, BK):
        k = k0 + tl.arange(0, BK)
        both = there[:, None] & (k < D)[None]
        xs = tl.load(x + r[:, None] * D + k[None], both, 0.0).to(WIDE)
        xs = normed_part(xs, k, mean, rstd, norm_weight, norm_bias, D, WIDE)
        tl.store(out + r[:, None] * D + k[None], xs.to(out.dtype.element_ty), both)


# Backward.


@triton.jit
def scaled_part(d_normed, x, r, k, both, mean, rstd, norm_weight, D: tl.constexpr, WIDE: tl.constexpr):
    """Some columns of a norm's normalised input, and of its result's gradient times its weight."""
    weight = tl.load(norm_weight + k, k < D, 0.0).to(WIDE)
    xs = tl.load(x + r[:, None] * D + k[None], both, 0.0).to(WIDE)
    hat = tl.where(both, (xs - mean[:, None]) * rstd[:, None], 0.0)
    return hat, d_normed * weight[None]


@triton.jit
def incoming(
    base, d_normed, d_memory, mix, r, k, both, memory_stride, mix_stride, ADD: tl.constexpr, K: tl.constexpr,
    D: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Some columns of a gradient: ``base``, with ``ADD`` the gradient ``d_normed``, and what memories add to it."""
    d = tl.load(base + r[:, None] * D + k[None], both, 0.0).to(WIDE)
    if ADD:
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

    The gradient of the result is the sum of ``base``, the gradient of the input of the sublayer above, and with ``mix``
    the gradient of the step's memories. With pre-norm the sublayer above adds ``norm'(d_normed)``, with post-norm
    ``d_normed``, and the gradient goes through this sublayer's own norm. Then ``out = act'(hidden)
    dropout(d_branch W)``, where ``d_branch`` is the gradient after dropout.

    Args:
        d_normed: None: nothing is above.
        x, norm_weight, mean_in, rstd_in: the norm that gradients go through, and its input [B, D].
        hidden: None: there is no activation.
        d_sum: the gradient of the sum of the residual connection is stored here, ``d_norm_out`` the gradient of the
            norm's result (post-norm), ``d_branch`` the gradient of the branch after dropout.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    there, first = r < B, first_column_tile()
    NORM: tl.constexpr = norm_weight is not None
    ADD: tl.constexpr = (not PRE) and (d_normed is not None)
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
                d = incoming(base, d_normed, d_memory, mix, r, k, both, memory_stride, mix_stride, ADD, K, D, WIDE)
            hat, scaled = scaled_part(d, x, r, k, both, mean, rstd, norm_weight, D, WIDE)
            summed += tl.sum(scaled, 1)
            along += tl.sum(scaled * hat, 1)
    total = tl.zeros([BM, BN], WIDE)
    for k0 in range(0, D, BK):
        k = k0 + tl.arange(0, BK)
        both = there[:, None] & (k < D)[None]
        at = r[:, None] * D + k[None]
        d = incoming(base, d_normed, d_memory, mix, r, k, both, memory_stride, mix_stride, ADD, K, D, WIDE)
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
    """``out [B, N] = a W``, for W [INNER, N].

    The third dimension of the grid counts sets of matrices, which lie ``a_set``, ``weight_set`` and ``out_set`` apart.
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
