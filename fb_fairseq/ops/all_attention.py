"""The all-attention layer (Sukhbaatar et al., arXiv 1907.01470): attention over context and persistent vectors.

See §4.2, Eq. 10–14. Variants of how the two are combined (§5.3): ``all-attn``, one softmax over both; ``attn-split``,
one softmax each, and the results added; ``single-head``, the same with one set of vectors as wide as all heads
together; ``head-split``, half of the heads for each. (``ff-attn``, a sublayer of its own, is ``persistent_sublayer``.)

Attention to persistent vectors, keys and values that do not depend on the input (§4.1), is ``Σ_n softmax_n(q · k_n /
sqrt(E)) v_n`` with ``k_n = sqrt(E) k'_n`` and ``v_n = sqrt(N) v'_n``, where k' and v' are the parameters: so the scores
are ``q · k'_n``. Each group of queries (one head, or all heads together) has N vectors of its own. The logarithm of the
softmax's sum is returned too: with it the result is combined with that of attention to the context, as one softmax
over both (``combine``). The reference is all_attention_reference.py.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fb_fairseq.ops.dropout import Dropout, dropout
from fb_fairseq.ops.layers import Affine, layer_norm
from fb_fairseq.ops.products import add_product, at_least_fp32

# Attention weights that are computed at a time: few enough to stay in a CPU's cache, enough to keep a GPU busy.
CHUNK_ENTRIES = {"cpu": 2**18, "cuda": 2**26}


class PersistentVectors(NamedTuple):
    """The parameters k' and v'."""

    key_UNE: Tensor
    value_UNE: Tensor


def persistent_scores(q_URE: Tensor, vectors: PersistentVectors) -> Tensor:
    """The score of each vector, before the softmax, [U, R, N]; at least fp32."""
    return at_least_fp32(q_URE @ vectors.key_UNE.to(q_URE.dtype).transpose(1, 2))


def persistent_attention(
    q_URE: Tensor, vectors: PersistentVectors, mask_URN: Dropout | None = None
) -> tuple[Tensor, Tensor]:
    """Attention of R rows of queries over N vectors each.

    Neither pass holds all weights [U, R, N] at once: they are computed chunk by chunk, and again in the backward pass.

    Args:
        mask_URN: dropout of the weights.

    Returns:
        The attention output [U, R, E], and the logarithms of the softmax's sums [U, R, 1].
    """
    keep, scale = mask_URN if mask_URN is not None else (None, 1.0)
    with torch.autocast(q_URE.device.type, enabled=False):
        key_UNE, value_UNE = (vector.to(q_URE.dtype) for vector in vectors)
        return PersistentAttention.apply(q_URE, key_UNE, value_UNE, keep, scale)


def combine(out: Tensor, lse: Tensor, other_out: Tensor, other_lse: Tensor) -> tuple[Tensor, Tensor]:
    """Combine attention over two sets of slots [..., E] as if it were one softmax over both.

    Args:
        lse, other_lse: logarithms of the two softmaxes' sums [..., 1].

    Returns:
        The result over both sets, and the second set's share of the attention [..., 1].
    """
    share = torch.sigmoid(other_lse - lse)
    return torch.lerp(out, other_out, share.to(out.dtype)), share


def chunks(groups: int, rows: int, vectors: int, device: torch.device) -> Iterator[tuple[slice, slice]]:
    """Slices of groups and rows that are computed at a time: one group on a CPU, all groups on a GPU."""
    together = 1 if device.type == "cpu" else groups
    size = max(1, CHUNK_ENTRIES.get(device.type, CHUNK_ENTRIES["cuda"]) // (vectors * together))
    for g in range(0, groups, together):
        for r in range(0, rows, size):
            yield slice(g, g + together), slice(r, r + size)


class PersistentAttention(torch.autograd.Function):
    """Forward and backward pass of ``persistent_attention``.

    With s = q k'ᵀ, p = softmax(s), p̂ = p · dropout, y = sqrt(N) p̂ v' and ℓ = log Σ exp s:

    ``ds = p (dp + dℓ - Σ p dp)`` with ``dp = dropout · sqrt(N) dy v'ᵀ``, and ``Σ p dp = y · dy``;
    ``dq = ds k'``, ``dk' = dsᵀ q``, ``dv' = sqrt(N) p̂ᵀ dy``.
    """

    @staticmethod
    def forward(ctx, q_URE, key_UNE, value_UNE, keep_URN, scale):
        (U, R, _), N = q_URE.shape, key_UNE.shape[1]
        out_URE, lse_UR1 = torch.empty_like(q_URE), at_least_fp32(q_URE.new_empty(U, R, 1))
        for u, r in chunks(U, R, N, q_URE.device):
            scores = at_least_fp32(q_URE[u, r] @ key_UNE[u].transpose(1, 2))
            top = scores.amax(-1, keepdim=True)
            weights = scores.sub_(top).exp_()
            total = weights.sum(-1, keepdim=True)
            lse_UR1[u, r] = total.log().add_(top)
            if keep_URN is not None:
                weights = weights.mul_(keep_URN[u, r])
            out_URE[u, r] = (weights.to(q_URE.dtype) @ value_UNE[u]).mul_(total.reciprocal_().mul_(scale * N**0.5))
        ctx.save_for_backward(q_URE, key_UNE, value_UNE, keep_URN, out_URE, lse_UR1)
        ctx.scale = scale
        return out_URE, lse_UR1

    @staticmethod
    @once_differentiable
    def backward(ctx, d_out_URE, d_lse_UR1):
        q_URE, key_UNE, value_UNE, keep_URN, out_URE, lse_UR1 = ctx.saved_tensors
        (U, R, _), N, dtype = q_URE.shape, key_UNE.shape[1], q_URE.dtype
        constant_UR1 = at_least_fp32(d_lse_UR1 - (out_URE * d_out_URE).sum(-1, keepdim=True, dtype=lse_UR1.dtype))
        d_out_URE = d_out_URE * (ctx.scale * N**0.5)
        dq_URE = torch.empty_like(q_URE)
        # Sums over all rows: fp32 at least.
        d_key_UNE, d_value_UNE = (torch.zeros_like(at_least_fp32(x)) for x in (key_UNE, value_UNE))
        for u, r in chunks(U, R, N, q_URE.device):
            weights = at_least_fp32(q_URE[u, r] @ key_UNE[u].transpose(1, 2)).sub_(lse_UR1[u, r]).exp_()
            d_weights = at_least_fp32(d_out_URE[u, r] @ value_UNE[u].transpose(1, 2))
            kept = weights
            if keep_URN is not None:
                d_weights, kept = d_weights.mul_(keep_URN[u, r]), weights * keep_URN[u, r]
            add_product(d_value_UNE[u], kept.to(dtype).transpose(1, 2), d_out_URE[u, r])
            d_scores = d_weights.add_(constant_UR1[u, r]).mul_(weights).to(dtype)
            dq_URE[u, r] = d_scores @ key_UNE[u]
            add_product(d_key_UNE[u], d_scores.transpose(1, 2), q_URE[u, r])
        return dq_URE, d_key_UNE.to(dtype), d_value_UNE.to(dtype), None, None


class AllAttentionWeights(NamedTuple):
    """The weights of one layer, without its key and value projections. See ``fb_fairseq.ops.layers.Layer``.

    Attributes:
        persistent: one group of vectors per head (``head-split``: per head of the second half), or one group for
            ``single-head`` and ``ff-attn``; None if N = 0.
        persistent_norm: the norm of ``ff-attn``'s second sublayer; None in the other variants.
    """

    query: Affine
    out: Affine
    attn_norm: Affine
    persistent: PersistentVectors | None
    variant: str
    persistent_norm: Affine | None = None
    span_mask_HS: Tensor | None = None


def split_queries(q: Tensor, variant: str) -> tuple[Tensor, Tensor]:
    """The queries that go to the context, and those that go to the persistent vectors.

    Args:
        q: a layer's queries [..., H, E].
        variant: one in which both are attended to in one sublayer: any but ``ff-attn``, whose queries of the persistent
            vectors are ``persistent_query``.

    Returns:
        Queries of the context [..., H, E], and of the persistent vectors [..., U, E]: the same in ``all-attn`` and
        ``attn-split``; [..., H / 2, E] each in ``head-split``; in ``single-head`` the second are [..., 1, X].
    """
    if variant == "head-split":
        return q.chunk(2, -2)
    if variant == "single-head":
        return q, q.flatten(-2)[..., None, :]
    return q, q


def all_attention(
    q_TBHE: Tensor, attend: Callable[..., Tensor], layer: AllAttentionWeights, mask_URN: Dropout | None = None
) -> tuple[Tensor, Tensor | None]:
    """Attention of the queries of a block [T, B, H, E] or a step [B, H, E] over context and persistent vectors.

    Args:
        attend: attention of queries over the context: ``step_attention`` or ``block_attention`` with their other
            arguments bound. It takes ``return_lse``.
        mask_URN: dropout of the weights of the persistent vectors; R is T x B, or B for a step.

    Returns:
        The attention output, in the queries' shape; and with ``all-attn`` the persistent vectors' share of the
        attention [..., H, 1], else None.
    """
    if layer.persistent is None or layer.variant == "ff-attn":
        return attend(q_TBHE), None
    context_q, persistent_q = split_queries(q_TBHE, layer.variant)
    persistent, persistent_lse = persistent_heads(persistent_q, layer.persistent, mask_URN)
    if layer.variant == "all-attn":
        return combine(*attend(context_q, return_lse=True), persistent, persistent_lse)
    if layer.variant == "head-split":
        return torch.cat([attend(context_q), persistent], -2), None
    return attend(context_q) + persistent.view_as(q_TBHE), None


def persistent_heads(q: Tensor, vectors: PersistentVectors, mask_URN: Dropout | None = None) -> tuple[Tensor, Tensor]:
    """``persistent_attention`` of queries [..., U, E], and the logarithms of its sums [..., U, 1]."""
    found = persistent_attention(by_group(q), vectors, mask_URN)
    return tuple(x_UR.transpose(0, 1).view(*q.shape[:-1], -1) for x_UR in found)


def by_group(q: Tensor) -> Tensor:
    """Queries [..., U, E] as rows [U, R, E]."""
    return q.flatten(0, -3).transpose(0, 1).contiguous()


def persistent_query(x: Tensor, layer: AllAttentionWeights, normalize_before: bool) -> Tensor:
    """The queries [..., 1, D] of ``persistent_sublayer``, from its input [..., D]."""
    return layer_norm(x, layer.persistent_norm if normalize_before else None)[..., None, :]


def persistent_sublayer(
    x: Tensor,
    layer: AllAttentionWeights,
    normalize_before: bool,
    mask_URN: Dropout | None = None,
    residual: Dropout | None = None,
) -> Tensor:
    """``ff-attn``: a feed-forward sublayer with a softmax in place of its ReLU, and no biases (Eq. 9).

    Args:
        x: its input [..., D].
        mask_URN: see ``all_attention``.
        residual: dropout of what is added to the input.

    Returns:
        Its output [..., D], residual connection and norm included.
    """
    attended, _ = persistent_heads(persistent_query(x, layer, normalize_before), layer.persistent, mask_URN)
    x = x + dropout(attended.squeeze(-2), residual)
    return x if normalize_before else layer_norm(x, layer.persistent_norm)
