"""The all-attention layer: attention over the context and over persistent vectors (All-attention §4.2, Eq. 10–14).

Variants of how the two go together (§5.3): ``all-attn`` one softmax over both; ``attn-split`` a softmax each, results
added; ``single-head`` the same, with one set of vectors of all heads' width; ``head-split`` half of the heads for each.
(``ff-attn``, a sublayer of its own, is ``persistent_sublayer``.) Shape suffixes: see ``fb_fairseq/ops/__init__.py``,
persistent vectors: ``fb_fairseq/ops/all_attention/persistent.py``.
"""

from typing import Callable, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from fb_fairseq.ops.all_attention.persistent import PersistentVectors, joined, persistent_attention
from fb_fairseq.ops.layers import Affine, Dropout, dropout, layer_norm


class AllAttentionWeights(NamedTuple):
    """The weights of one layer, without its key and value projections. See ``fb_fairseq.ops.layers.Layer``.

    persistent: one group a head (of the second half of the heads with ``head-split``), else one group; None where N = 0.
    persistent_norm: of ``ff-attn``'s second sublayer.
    """

    query: Affine
    out: Affine
    attn_norm: Affine
    persistent: Optional[PersistentVectors]
    variant: str
    persistent_norm: Optional[Affine] = None
    span_mask_HS: Optional[Tensor] = None


def all_attention(
    q_TBHE: Tensor,
    attend: Callable[..., Tensor],
    layer: AllAttentionWeights,
    mask_GRN: Optional[Dropout] = None,
) -> Tuple[Tensor, Optional[Tensor]]:
    """What the queries [T, B, H, E] of a block, or [B, H, E] of a step, take of context and persistent vectors.

    Args:
        attend: attention of queries over the context, ``step_attention`` or ``block_attention`` with their other
            arguments; takes ``return_lse``.
        mask_GRN: dropout of the persistent vectors' weights.

    Returns:
        The same shape; and in one softmax the share of the persistent vectors [..., H, 1], else None.
    """
    if layer.persistent is None or layer.variant == "ff-attn":
        return attend(q_TBHE), None
    if layer.variant == "head-split":
        half = q_TBHE.shape[-2] // 2
        persistent, _ = persistent_heads(q_TBHE[..., half:, :], layer.persistent, mask_GRN)
        return torch.cat([attend(q_TBHE[..., :half, :]), persistent], -2), None
    if layer.variant == "single-head":
        persistent, _ = persistent_heads(q_TBHE.flatten(-2)[..., None, :], layer.persistent, mask_GRN)
        return attend(q_TBHE) + persistent.view_as(q_TBHE), None
    persistent, persistent_lse = persistent_heads(q_TBHE, layer.persistent, mask_GRN)
    if layer.variant == "attn-split":
        return attend(q_TBHE) + persistent, None
    context, context_lse = attend(q_TBHE, return_lse=True)
    return joined(context, context_lse, persistent, persistent_lse)


def persistent_heads(q: Tensor, vectors: PersistentVectors, mask_GRN: Optional[Dropout]) -> Tuple[Tensor, Tensor]:
    """``persistent_attention`` of queries [..., G, E], and its logarithms [..., G, 1]."""
    q_GRE = q.flatten(0, -3).transpose(0, 1).contiguous()
    return tuple(x.transpose(0, 1).view(*q.shape[:-1], -1) for x in persistent_attention(q_GRE, vectors, mask_GRN))


def persistent_sublayer(
    x: Tensor,
    layer: AllAttentionWeights,
    normalize_before: bool,
    mask_GRN: Optional[Dropout] = None,
    residual: Optional[Dropout] = None,
) -> Tensor:
    """``ff-attn``: a feed-forward sublayer with a softmax for its ReLU and no biases (Eq. 9), [..., D] to [..., D]."""
    query = layer_norm(x, layer.persistent_norm if normalize_before else None)
    attended, _ = persistent_heads(query[..., None, :], layer.persistent, mask_GRN)
    x = x + dropout(attended.squeeze(-2), residual)
    return x if normalize_before else layer_norm(x, layer.persistent_norm)
