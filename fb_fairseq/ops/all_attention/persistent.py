"""Attention over persistent vectors: keys and values that do not depend on the input (All-attention §4.1–4.2).

``Σ_n softmax_n(q · k_n / sqrt(E)) v_n`` with ``k_n = sqrt(E) k'_n`` and ``v_n = sqrt(N) v'_n``, where k' and v' are the
parameters: scores are ``q · k'_n``. Each group of queries (a head, or all of them) has N vectors of its own. The
softmax's sum goes out too: with it the result joins that of attention over the context in one softmax (``joined``).
Shape suffixes: see ``fb_fairseq/ops/__init__.py``; here

    G  groups                       R  rows of queries (steps and streams)
    N  persistent vectors
"""

from typing import Iterator, NamedTuple, Optional, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fb_fairseq.ops.layers import Dropout, at_least_fp32, dropout

# Entries of the weights that are computed at a time: on a CPU they stay in its cache, on a GPU they fill it.
CHUNK = {"cpu": 2**18, "cuda": 2**26}


class PersistentVectors(NamedTuple):
    """The parameters k' and v'."""

    key_GNE: Tensor
    value_GNE: Tensor


def persistent_attention_reference(
    q_GRE: Tensor, vectors: PersistentVectors, mask_GRN: Optional[Dropout] = None
) -> Tuple[Tensor, Tensor]:
    """The plain twin of ``persistent_attention``."""
    scores_GRN = at_least_fp32(q_GRE @ vectors.key_GNE.transpose(1, 2))
    weights_GRN = dropout(torch.softmax(scores_GRN, -1).to(q_GRE.dtype), mask_GRN)
    out_GRE = weights_GRN @ vectors.value_GNE * vectors.value_GNE.shape[1] ** 0.5
    return out_GRE, scores_GRN.logsumexp(-1, keepdim=True)


def persistent_attention(
    q_GRE: Tensor, vectors: PersistentVectors, mask_GRN: Optional[Dropout] = None
) -> Tuple[Tensor, Tensor]:
    """Attention of R rows over N vectors, [G, R, E], and the logarithms of the softmax's sums, [G, R, 1].

    Neither pass ever holds all weights [G, R, N]: they are made chunk by chunk, and again in the backward pass.

    Args:
        mask_GRN: dropout of the weights.
    """
    keep, scale = mask_GRN if mask_GRN is not None else (None, 1.0)
    with torch.autocast(q_GRE.device.type, enabled=False):
        key_GNE, value_GNE = (vector.to(q_GRE.dtype) for vector in vectors)
        return PersistentAttention.apply(q_GRE, key_GNE, value_GNE, keep, scale)


def joined(out: Tensor, lse: Tensor, other_out: Tensor, other_lse: Tensor) -> Tuple[Tensor, Tensor]:
    """One softmax of two: the results [..., E] of attention over two sets of slots, weighted by their softmaxes' sums.

    Returns:
        The result over both sets, and the share of the second one [..., 1].
    """
    share = torch.sigmoid(other_lse - lse)
    return torch.lerp(out, other_out, share.to(out.dtype)), share


def chunks(groups: int, rows: int, vectors: int, device: torch.device) -> Iterator[Tuple[slice, slice]]:
    """Slices of groups and rows: as many rows at a time as fit, of one group on a CPU, of all on a GPU."""
    together = 1 if device.type == "cpu" else groups
    size = max(1, CHUNK.get(device.type, CHUNK["cuda"]) // (vectors * together))
    for g in range(0, groups, together):
        for r in range(0, rows, size):
            yield slice(g, g + together), slice(r, r + size)


class PersistentAttention(torch.autograd.Function):
    """With s = q k'ᵀ, p = softmax(s), p̂ = p · dropout, y = sqrt(N) p̂ v' and ℓ = log Σ exp s:

    ``ds = p (dp + dℓ - Σ p dp)`` with ``dp = dropout · sqrt(N) dy v'ᵀ``, and ``Σ p dp = y · dy``;
    ``dq = ds k'``, ``dk' = dsᵀ q``, ``dv' = sqrt(N) p̂ᵀ dy``.
    """

    @staticmethod
    def forward(ctx, q_GRE, key_GNE, value_GNE, keep_GRN, scale):
        (G, R, _), N = q_GRE.shape, key_GNE.shape[1]
        out_GRE, lse_GR1 = torch.empty_like(q_GRE), at_least_fp32(q_GRE.new_empty(G, R, 1))
        for g, r in chunks(G, R, N, q_GRE.device):
            scores = at_least_fp32(q_GRE[g, r] @ key_GNE[g].transpose(1, 2))
            top = scores.amax(-1, keepdim=True)
            weights = scores.sub_(top).exp_()
            total = weights.sum(-1, keepdim=True)
            lse_GR1[g, r] = total.log().add_(top)
            if keep_GRN is not None:
                weights = weights.mul_(keep_GRN[g, r])
            out_GRE[g, r] = (weights.to(q_GRE.dtype) @ value_GNE[g]).mul_(total.reciprocal_().mul_(scale * N**0.5))
        ctx.save_for_backward(q_GRE, key_GNE, value_GNE, keep_GRN, out_GRE, lse_GR1)
        ctx.scale = scale
        return out_GRE, lse_GR1

    @staticmethod
    @once_differentiable
    def backward(ctx, d_out_GRE, d_lse_GR1):
        q_GRE, key_GNE, value_GNE, keep_GRN, out_GRE, lse_GR1 = ctx.saved_tensors
        (G, R, _), N, dtype = q_GRE.shape, key_GNE.shape[1], q_GRE.dtype
        constant_GR1 = at_least_fp32(d_lse_GR1 - (out_GRE * d_out_GRE).sum(-1, keepdim=True, dtype=lse_GR1.dtype))
        d_out_GRE = d_out_GRE * (ctx.scale * N**0.5)
        dq_GRE = torch.empty_like(q_GRE)
        # Sums over all rows: fp32 at least.
        d_key_GNE, d_value_GNE = (torch.zeros_like(at_least_fp32(x)) for x in (key_GNE, value_GNE))
        for g, r in chunks(G, R, N, q_GRE.device):
            weights = at_least_fp32(q_GRE[g, r] @ key_GNE[g].transpose(1, 2)).sub_(lse_GR1[g, r]).exp_()
            d_weights = at_least_fp32(d_out_GRE[g, r] @ value_GNE[g].transpose(1, 2))
            kept = weights
            if keep_GRN is not None:
                d_weights, kept = d_weights.mul_(keep_GRN[g, r]), weights * keep_GRN[g, r]
            add_product(d_value_GNE[g], kept.to(dtype).transpose(1, 2), d_out_GRE[g, r])
            d_scores = d_weights.add_(constant_GR1[g, r]).mul_(weights).to(dtype)
            dq_GRE[g, r] = d_scores @ key_GNE[g]
            add_product(d_key_GNE[g], d_scores.transpose(1, 2), q_GRE[g, r])
        return dq_GRE, d_key_GNE.to(dtype), d_value_GNE.to(dtype), None, None


def add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add the products of matrices to a total that may be of a wider type."""
    if total.dtype == a.dtype:
        total.baddbmm_(a, b)
    else:
        total.add_(a @ b)
