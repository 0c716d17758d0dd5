"""The all-attention layer: attention over the context and over persistent vectors (All-attention §4.2, Eq. 10–14).

Variants of how the two are combined (§5.3): ``all-attn``, one softmax over both; ``attn-split``, one softmax each, and
the results added; ``single-head``, the same with one set of vectors as wide as all heads together; ``head-split``, half
of the heads for each. (``ff-attn``, a sublayer of its own, is ``persistent_sublayer``.) Shape suffixes: see
``fb_fairseq/ops/__init__.py``.
"""

from typing import Callable, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from fb_fairseq.ops.all_attention.persistent import PersistentVectors, combine, persistent_attention
from fb_fairseq.ops.layers import Affine, Dropout, dropout, layer_norm


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
    persistent: Optional[PersistentVectors]
    variant: str
    persistent_norm: Optional[Affine] = None
    span_mask_HS: Optional[Tensor] = None


def all_attention(
    q_TBHE: Tensor,
    attend: Callable[..., Tensor],
    layer: AllAttentionWeights,
    attend_persistent: Callable[[Tensor], Tuple[Tensor, Tensor]],
) -> Tuple[Tensor, Optional[Tensor]]:
    """Attention of the queries of a block [T, B, H, E] or a step [B, H, E] over context and persistent vectors.

    Args:
        attend: attention of queries over the context: ``step_attention`` or ``block_attention`` with their other
            arguments bound. It takes ``return_lse``.
        attend_persistent: attention of queries over the persistent vectors: ``persistent_heads`` with its other
            arguments bound.

    Returns:
        The attention output, in the queries' shape; and with ``all-attn`` the persistent vectors' share of the
        attention [..., H, 1], else None.
    """
    if layer.persistent is None or layer.variant == "ff-attn":
        return attend(q_TBHE), None
    if layer.variant == "head-split":
        half = q_TBHE.shape[-2] // 2
        persistent, _ = attend_persistent(q_TBHE[..., half:, :])
        return torch.cat([attend(q_TBHE[..., :half, :]), persistent], -2), None
    if layer.variant == "single-head":
        persistent, _ = attend_persistent(q_TBHE.flatten(-2)[..., None, :])
        return attend(q_TBHE) + persistent.view_as(q_TBHE), None
    persistent, persistent_lse = attend_persistent(q_TBHE)
    if layer.variant == "attn-split":
        return attend(q_TBHE) + persistent, None
    context, context_lse = attend(q_TBHE, return_lse=True)
    return combine(context, context_lse, persistent, persistent_lse)


def persistent_heads(
    q: Tensor, vectors: PersistentVectors, mask_URN: Optional[Dropout] = None
) -> Tuple[Tensor, Tensor]:
    """``persistent_attention`` of queries [..., U, E], and the logarithms of its sums [..., U, 1]."""
    found = persistent_attention(by_group(q), vectors, mask_URN)
    return tuple(x_UR.transpose(0, 1).view(*q.shape[:-1], -1) for x_UR in found)


def by_group(q: Tensor) -> Tensor:
    """Queries [..., U, E] as rows [U, R, E]."""
    return q.flatten(0, -3).transpose(0, 1).contiguous()


def persistent_sublayer(
    x: Tensor,
    layer: AllAttentionWeights,
    normalize_before: bool,
    attend_persistent: Callable[[Tensor], Tuple[Tensor, Tensor]],
    residual: Optional[Dropout] = None,
) -> Tensor:
    """``ff-attn``: a feed-forward sublayer with a softmax in place of its ReLU, and no biases (Eq. 9).

    Args:
        x: its input [..., D].
        attend_persistent: see ``all_attention``.
        residual: dropout of what is added to the input.

    Returns:
        Its output [..., D], residual connection and norm included.
    """
    query = layer_norm(x, layer.persistent_norm if normalize_before else None)
    attended, _ = attend_persistent(query[..., None, :])
    x = x + dropout(attended.squeeze(-2), residual)
    return x if normalize_before else layer_norm(x, layer.persistent_norm)
