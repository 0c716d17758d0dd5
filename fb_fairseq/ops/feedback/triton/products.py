"""Linear maps of a step's rows, each one kernel with what comes before and after it.

``normed_product`` has a layer norm in its prologue, ``product_residual`` an activation and dropout in its prologue and
the residual connection in its epilogue. A program computes a tile of BM rows and BN columns, and goes through the inner
dimension, of INNER or D numbers, in pieces of BK. Every column tile repeats its rows' norm; the first one stores what
later kernels need.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``. Matrices are contiguous, vectors [B, D] too. Arguments of all
kernels here, in ``products_backward.py`` and in ``memory.py``:

    B, N    rows and columns of the result
    BM, BN, BK   sizes of tiles, powers of two; see ``tiles.py``
    P       precision of products of fp32, as ``tl.dot`` names it: ieee or tf32
    WIDE    type of sums: fp32, or fp64 in the interpreter
    KIND    number of an activation; see ``activations.py``
    PDL     whether the launch may begin while the kernel before it ends (programmatic dependent launch): then it waits
            before it reads anything
    keep…   bytes of a dropout mask, 1 where a number is kept; None: nothing is dropped
    scale…  of what is kept, 1 / (1 - p)
"""

import triton
import triton.language as tl

from fb_fairseq.ops.feedback.triton.activations import LINEAR, RELU, activation
from fb_fairseq.ops.layers import LAYER_NORM_EPS

EPS = tl.constexpr(LAYER_NORM_EPS)


@triton.jit
def first_column_tile():
    """True in the program of the first column tile, [1]. (Triton 3.9's interpreter takes no scalar in a mask.)"""
    return tl.program_id(1) + tl.zeros([1], tl.int32) == 0


@triton.jit
def statistics(x, r, there, D: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr, WIDE: tl.constexpr):
    """Mean and 1 / standard deviation of rows r of x [B, D]. ``there``: which of them are less than B."""
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
    """Columns k of a layer norm's result, from those of its input x."""
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
        x: [B, D].
        norm_weight, norm_bias: [D]; None: there is no norm.
        weight, bias: W [N, D] and b [N]; b may be None.
        out: the result.
        normed: where the norm's result [B, D] is stored; None: nowhere.
        mean_out, rstd_out: where its mean and 1 / standard deviation [B] are stored; None: nowhere.
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
    """``out [B, N] = residual + dropout(f(a) Wᵀ + b)``, where f is an activation and its dropout.

    Args:
        a: [B, INNER]; of ReLU, its result, to which it is not applied again.
        weight, bias: W [N, INNER] and b [N]; b may be None.
        residual: [B, N].
        out: the result.
        keep_in, scale_in: dropout of f [B, INNER].
        keep_out, scale_out: dropout of the linear map's result [B, N].
        KIND: of f.
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
    """``out [B, D] = norm(x)``.

    Args:
        x: [B, D].
        norm_weight, norm_bias: [D].
        out: the result.
        mean_out, rstd_out: where its mean and 1 / standard deviation [B] are stored.
    """
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
