"""Attention of each step to the S steps before it, never to itself.

Slot c holds the key and value of an earlier step, at distance d from the query: d = 1 is the step just before it. The
result is ``Σ_c a_c (v_c + w_d)`` with

    score_c = q · (k_c + u_d) / sqrt(E)
    a_c = m_d exp(score_c) / Σ_c m_d exp(score_c)

where u are relative position embeddings of keys (Shaw et al. 2018; Feedback Transformer v3 §7.6), w those of values
(All-attention, Eq. 4), and the soft mask m is 1 or a head's adaptive span (Sukhbaatar et al. 2019). The result is zero
where there is nothing to attend to.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fb_fairseq.ops.dropout import Dropout, dropout
from fb_fairseq.ops.products import at_least_fp32
from fb_fairseq.ops.span_masks import span_softmax
from fb_fairseq.ops.windows import by_distance, by_slot, slots_of_episode

LEAST_STEPS = 128  # steps of a long block whose queries are computed together, at least


class Positions(NamedTuple):
    """Relative position embeddings of keys and values, row d - 1 for distance d; None if keys or values have none."""

    key_SE: Tensor | None = None
    value_SE: Tensor | None = None

    def reaching(self, span: int) -> "Positions":
        """The embeddings [span, E] of the distances 1 to ``span``."""
        return Positions(*(None if table is None else table[:span] for table in self))

    def of_slots(self, distances_C: Tensor) -> "Positions":
        """The embeddings [C, E] of slots at these distances from the query."""
        return Positions(*(None if table is None else table[distances_C - 1] for table in self))

    def of_window(self, span: int) -> "Positions":
        """The embeddings [S, E] of the last steps, the newest last: distances S to 1."""
        return Positions(*(None if table is None else table[:span].flip(0) for table in self))


def step_attention(
    q_BHE: Tensor,
    k_CBHE: Tensor,
    v_CBHE: Tensor,
    positions: Positions,
    *,
    mask_BHS: Dropout | None = None,
    span_mask_HC: Tensor | None = None,
    return_lse: bool = False,
    far_BC: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Attention of one step's queries over C <= S slots in any order.

    Args:
        positions: embeddings of these slots; see ``Positions.of_window`` and ``of_slots``.
        mask_BHS: dropout of the weights; its last C columns belong to the slots.
        span_mask_HC: soft mask of these slots; None: all ones.
        return_lse: also return the logarithm of the softmax's sum.
        far_BC: True for slots that a stream may not look at, because they are older than its episode.

    Returns:
        The attention output [B, H, E]; with ``return_lse`` a pair of it and the logarithms [B, H, 1].
    """
    C = k_CBHE.shape[0]
    if C == 0:
        return nothing_attended(q_BHE, return_lse)
    scores_BHC = torch.einsum("bhe,cbhe->bhc", q_BHE, k_CBHE)
    if positions.key_SE is not None:
        scores_BHC = scores_BHC + q_BHE @ positions.key_SE.t()
    scores_BHC = scores_BHC * q_BHE.shape[-1] ** -0.5
    scores_BHC = at_least_fp32(scores_BHC)
    if far_BC is not None:
        near_BHC = (~far_BC).to(scores_BHC.dtype)[:, None].expand_as(scores_BHC)
        span_mask_HC = near_BHC if span_mask_HC is None else near_BHC * span_mask_HC
    if span_mask_HC is not None:
        weights_BHC, lse_BH1 = span_softmax(scores_BHC, span_mask_HC)
    else:
        weights_BHC, lse_BH1 = torch.softmax(scores_BHC, -1), scores_BHC.logsumexp(-1, True) if return_lse else None
    weights_BHC = weights_BHC.to(v_CBHE.dtype)
    if mask_BHS is not None:
        weights_BHC = dropout(weights_BHC, Dropout(mask_BHS.keep[..., -C:], mask_BHS.scale))
    out_BHE = torch.einsum("bhc,cbhe->bhe", weights_BHC, v_CBHE)
    if positions.value_SE is not None:
        out_BHE = out_BHE + weights_BHC @ positions.value_SE
    return (out_BHE, lse_BH1) if return_lse else out_BHE


def nothing_attended(q: Tensor, return_lse: bool) -> Tensor | tuple[Tensor, Tensor]:
    """Attention over no slots: zeros [..., E]; with ``return_lse`` a pair of them and the lowest number [..., 1]."""
    zeros = torch.zeros_like(q)
    lowest = at_least_fp32(q[..., :1].detach())
    return (zeros, torch.full_like(lowest, torch.finfo(lowest.dtype).min)) if return_lse else zeros


def block_attention(
    q_TBHE: Tensor,
    k_CBHE: Tensor,
    v_CBHE: Tensor,
    span: int,
    positions: Positions,
    *,
    mask_BHTS: Dropout | None = None,
    span_mask_HS: Tensor | None = None,
    return_lse: bool = False,
    age_TB: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Attention of the queries of T steps at once: ``step_attention`` for each.

    The newest slot is the step before the last query's. So the newest slot of query t is C - T + t; it attends to that
    one and the S - 1 before it.

    Args:
        span: S.
        positions: embeddings of the distances 1 to S.
        mask_BHTS: dropout of the weights; column S - d is that of distance d.
        span_mask_HS: soft mask, column d - 1 for distance d; None: all ones.
        return_lse: also return the logarithm of the softmax's sum.
        age_TB: the age of each stream's episode at each step, beyond which it does not look back; None: S steps.

    Returns:
        The attention output [T, B, H, E]; with ``return_lse`` a pair of it and the logarithms [T, B, H, 1].
    """
    (T, C), S = (len(q_TBHE), len(k_CBHE)), span
    if C == 0:
        return nothing_attended(q_TBHE, return_lse)
    steps = max(S, LEAST_STEPS)
    if T > steps:  # piece by piece: few of all T x C pairs are within the span
        pieces = []
        for first in range(0, T, steps):
            last = min(T, first + steps)
            own = slice(first, last)
            # From the oldest slot of the first query's window to the newest of the last query's.
            slots = slice(max(0, C - T + first + 1 - S), max(0, C - T + last))
            piece = block_attention(
                q_TBHE[own],
                k_CBHE[slots],
                v_CBHE[slots],
                S,
                positions,
                mask_BHTS=mask_BHTS and Dropout(mask_BHTS.keep[:, :, own], mask_BHTS.scale),
                span_mask_HS=span_mask_HS,
                return_lse=return_lse,
                age_TB=None if age_TB is None else age_TB[own],
            )
            pieces.append(piece)
        return tuple(map(torch.cat, zip(*pieces))) if return_lse else torch.cat(pieces)
    weights_BHTC, lse_BHT1 = block_attention_weights(
        q_TBHE, k_CBHE, S, positions, span_mask_HS=span_mask_HS, return_lse=return_lse, age_TB=age_TB
    )
    weights_BHTC = weights_BHTC.to(v_CBHE.dtype)
    if mask_BHTS is not None:
        weights_BHTC = dropout(weights_BHTC, Dropout(by_slot(mask_BHTS.keep, C), mask_BHTS.scale))
    out_BHTE = torch.einsum("bhtc,cbhe->bhte", weights_BHTC, v_CBHE)
    if positions.value_SE is not None:
        out_BHTE = out_BHTE + by_distance(weights_BHTC, S) @ positions.value_SE.flip(0)
    out_TBHE = out_BHTE.permute(2, 0, 1, 3)
    return (out_TBHE, lse_BHT1.permute(2, 0, 1, 3)) if return_lse else out_TBHE


def block_attention_weights(
    q_TBHE: Tensor,
    k_CBHE: Tensor,
    span: int,
    positions: Positions,
    *,
    span_mask_HS: Tensor | None = None,
    return_lse: bool = False,
    age_TB: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """The weights a of ``block_attention``, [B, H, T, C] for C > 0 slots, before dropout; at least fp32.

    Args:
        q_TBHE, k_CBHE, span, positions, span_mask_HS, age_TB: see ``block_attention``.
        return_lse: compute the logarithm of the softmax's sum, even where the weights do not need it.

    Returns:
        The weights; and that logarithm [B, H, T, 1], or None.
    """
    T, C, S = q_TBHE.shape[0], k_CBHE.shape[0], span
    q_BHTE = q_TBHE.permute(1, 2, 0, 3)
    scores_BHTC = torch.einsum("bhte,cbhe->bhtc", q_BHTE, k_CBHE)
    if positions.key_SE is not None:
        scores_BHTC = scores_BHTC + by_slot(q_BHTE @ positions.key_SE.flip(0).t(), C)
    scores_BHTC = scores_BHTC * q_BHTE.shape[-1] ** -0.5
    scores_BHTC = at_least_fp32(scores_BHTC)
    if span_mask_HS is not None:
        span_mask = by_slot(span_mask_HS.flip(1)[:, None].expand(-1, T, -1), C)  # [H, T, C]; of episodes [B, H, T, C]
        if age_TB is not None:
            span_mask = span_mask * slots_of_episode(age_TB, C)
        weights_BHTC, lse_BHT1 = span_softmax(scores_BHTC, span_mask)
    else:
        reached_TC = by_slot(torch.ones(T, S, dtype=torch.bool, device=k_CBHE.device), C)
        if age_TB is not None:
            reached_TC = reached_TC & slots_of_episode(age_TB, C)
        # Filled with a finite number, and with zero after the softmax: so rows that reach no slot become zero, and
        # their gradient is not NaN.
        scores_BHTC = scores_BHTC.masked_fill(~reached_TC, torch.finfo(scores_BHTC.dtype).min)
        weights_BHTC = torch.softmax(scores_BHTC, -1).masked_fill(~reached_TC, 0)
        lse_BHT1 = scores_BHTC.logsumexp(-1, True) if return_lse else None
    return weights_BHTC, lse_BHT1


def attention_by_distance(
    q_TBHE: Tensor, k_CBHE: Tensor, span: int, positions: Positions, span_mask_HS: Tensor | None = None
) -> Tensor:
    """The weights of ``block_attention``, for inspection: [B, H, T, S], column d - 1 for distance d.

    They are zero where the slots do not reach that far.
    """
    if not len(k_CBHE):
        T, B, H, _ = q_TBHE.shape
        return at_least_fp32(q_TBHE.new_zeros(B, H, T, span))
    weights_BHTC, _ = block_attention_weights(q_TBHE, k_CBHE, span, positions, span_mask_HS=span_mask_HS)
    return by_distance(weights_BHTC, span).flip(-1)
