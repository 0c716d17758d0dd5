"""Attention of each step to the S steps before it, never to itself.

Of C context slots the newest lies 1 step before the query, the oldest C steps. Scores are
``q · (k_c + u_d) / sqrt(E)`` with a relative position embedding u_d of the distance d
(Shaw et al. 2018; Feedback Transformer v3 §7.6), values ``v_c``, or ``v_c + w_d`` (All-attention, Eq. 4).
Weights are ``mask exp(score) / Σ mask exp(score)``, the mask 1, or the head's adaptive span (Sukhbaatar et al. 2019).
Attention over nothing is zero. Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

from typing import NamedTuple, Optional, Tuple, Union

import torch
import torch.nn.functional as F
from torch import Tensor

from fb_fairseq.ops.layers import Dropout, at_least_fp32, dropout


class Positions(NamedTuple):
    """Relative position embeddings of keys and values: row d - 1 for distance d. None: there are none."""

    key_SE: Optional[Tensor] = None
    value_SE: Optional[Tensor] = None

    def reaching(self, span: int) -> "Positions":
        """The rows for the distances 1 to ``span``."""
        return Positions(*(None if table is None else table[:span] for table in self))

    def of_slots(self, distances_C: Tensor) -> "Positions":
        """The rows [C, E] for slots at these distances from the query."""
        return Positions(*(None if table is None else table[distances_C - 1] for table in self))

    def of_window(self, slots: int) -> "Positions":
        """The rows for C slots in the order of their steps, the newest last."""
        return Positions(*(None if table is None else table[:slots].flip(0) for table in self))


def span_mask(z_H: Tensor, span: int, ramp: float) -> Tensor:
    """The heads' soft masks by distance, [H, S]: ``clamp((R + z S - (d - 1)) / R, 0, 1)`` in column d - 1.

    Sukhbaatar et al. 2019, §3.2, as the Feedback Transformer uses it (v3 §7.6).

    Args:
        z_H: span of each head, as a fraction of S.
        span: S, in steps.
        ramp: R, the steps over which the mask falls from 1 to 0.
    """
    steps_S = torch.arange(span, device=z_H.device, dtype=z_H.dtype)
    return ((ramp + z_H[:, None] * span - steps_S) / ramp).clamp(0, 1)


def span_softmax(scores: Tensor, mask: Tensor) -> Tuple[Tensor, Tensor]:
    """Softmax under a soft mask: ``mask exp(scores) / Σ mask exp(scores)`` over the last dimension.

    The maximum is taken where the mask is above zero, and nothing is added to the sum: so slots that are masked out can
    as well be left out.

    Returns:
        The weights, zero where the mask is zero everywhere; and the logarithm of the sum [..., 1], in that case the
        lowest number (the gradient of -∞ would be NaN).
    """
    scores = scores.masked_fill(mask == 0, torch.finfo(scores.dtype).min)
    top = scores.detach().amax(-1, keepdim=True)
    exp = mask * (scores - top).exp()
    total = exp.sum(-1, keepdim=True)
    total = total.masked_fill(total == 0, 1)
    return exp / total, top + total.log()


class SpanTerms(NamedTuple):
    """Adaptive spans in the form of terms: what is added to the scores, and where a head does not reach."""

    log_mask_HS: Tensor
    outside_HS: Tensor


def span_terms(mask_HS: Tensor) -> SpanTerms:
    """The terms of a span mask. Where it is zero, the logarithm is a quarter of the lowest number: so the sum with any
    score stays finite, and still vanishes beside every score that is seen."""
    outside_HS = mask_HS == 0
    return SpanTerms(mask_HS.log().masked_fill(outside_HS, torch.finfo(mask_HS.dtype).min / 4), outside_HS)


def step_attention(
    q_BHE: Tensor,
    k_CBHE: Tensor,
    v_CBHE: Tensor,
    positions: Positions,
    mask_BHS: Optional[Dropout] = None,
    span_mask_HC: Optional[Tensor] = None,
    return_lse: bool = False,
    far_BC: Optional[Tensor] = None,
) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """One step's queries over C <= S slots, in any order: [B, H, E].

    Args:
        positions: of these slots, see ``Positions.of_window`` and ``of_slots``.
        mask_BHS: dropout; the last C columns are the slots'.
        span_mask_HC: of these slots.
        return_lse: also return the logarithm of the softmax's sum, [B, H, 1].
        far_BC: True for slots that a stream does not reach: those before its episode.
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


def nothing_attended(q: Tensor, return_lse: bool) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """Attention over no slots at all: zeros [..., E], and with ``return_lse`` the lowest number [..., 1]."""
    zeros = torch.zeros_like(q)
    lowest = at_least_fp32(q[..., :1].detach())
    return (zeros, torch.full_like(lowest, torch.finfo(lowest.dtype).min)) if return_lse else zeros


def cross_attention(
    q_BHE: Tensor,
    k_CBHE: Tensor,
    v_CBHE: Tensor,
    padding_BC: Optional[Tensor] = None,
    mask_BHC: Optional[Dropout] = None,
) -> Tuple[Tensor, Tensor]:
    """One step's queries over the C positions of an encoder's output (Vaswani et al. 2017 §3.2.3).

    Args:
        k_CBHE, v_CBHE, padding_BC: of each source; with fewer sources than queries, each is n queries', one after the
            other (hypotheses of one sentence).
        padding_BC: True where the source is padded.
        mask_BHC: dropout.

    Returns:
        What was attended to [B, H, E], and the weights [B, H, C] before dropout.
    """
    # n queries each.
    q_BnHE = q_BHE.unflatten(0, (k_CBHE.shape[1], -1))
    scores_BnHC = torch.einsum("bnhe,cbhe->bnhc", q_BnHE, k_CBHE) * q_BHE.shape[-1] ** -0.5
    scores_BnHC = at_least_fp32(scores_BnHC)
    if padding_BC is not None:
        scores_BnHC = scores_BnHC.masked_fill(padding_BC[:, None, None], float("-inf"))
    weights_BHC = torch.softmax(scores_BnHC, -1).to(v_CBHE.dtype).flatten(0, 1)
    dropped_BnHC = dropout(weights_BHC, mask_BHC).unflatten(0, scores_BnHC.shape[:2])
    return torch.einsum("bnhc,cbhe->bnhe", dropped_BnHC, v_CBHE).flatten(0, 1), weights_BHC


def block_attention(
    q_TBHE: Tensor,
    k_CBHE: Tensor,
    v_CBHE: Tensor,
    span: int,
    positions: Positions,
    mask_BHTS: Optional[Dropout] = None,
    span_mask_HS: Optional[Tensor] = None,
    return_lse: bool = False,
    reach_TB: Optional[Tensor] = None,
) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """The queries of T steps at once: [T, B, H, E]; with ``return_lse`` also the softmax's sums, logarithms [T, B, H,
    1].

    The C slots end one step before the last query: query t reaches the slots up to C - T + t.

    Args:
        reach_TB: see ``feedback_reference.feedback_block``.
    """
    T, C, S = q_TBHE.shape[0], k_CBHE.shape[0], span
    if C == 0:
        return nothing_attended(q_TBHE, return_lse)
    q_BHTE = q_TBHE.permute(1, 2, 0, 3)
    scores_BHTC = torch.einsum("bhte,cbhe->bhtc", q_BHTE, k_CBHE)
    if positions.key_SE is not None:
        scores_BHTC = scores_BHTC + by_slot(q_BHTE @ positions.key_SE.flip(0).t(), C)
    scores_BHTC = scores_BHTC * q_BHTE.shape[-1] ** -0.5
    scores_BHTC = at_least_fp32(scores_BHTC)
    if span_mask_HS is not None:
        mask_HTC = by_slot(span_mask_HS.flip(1)[:, None].expand(-1, T, -1), C)
        if reach_TB is not None:
            mask_HTC = mask_HTC * reached_slots(reach_TB, C)
        weights_BHTC, lse_BHT1 = span_softmax(scores_BHTC, mask_HTC)
    else:
        reached_TC = by_slot(torch.ones(T, S, dtype=torch.bool, device=k_CBHE.device), C)
        if reach_TB is not None:
            reached_TC = reached_TC & reached_slots(reach_TB, C)
        # A finite fill, and zero afterwards: rows that reach no slot become zero and give no NaN gradient.
        scores_BHTC = scores_BHTC.masked_fill(~reached_TC, torch.finfo(scores_BHTC.dtype).min)
        weights_BHTC = torch.softmax(scores_BHTC, -1).masked_fill(~reached_TC, 0)
        lse_BHT1 = scores_BHTC.logsumexp(-1, True) if return_lse else None
    weights_BHTC = weights_BHTC.to(v_CBHE.dtype)
    if mask_BHTS is not None:
        weights_BHTC = dropout(weights_BHTC, Dropout(by_slot(mask_BHTS.keep, C), mask_BHTS.scale))
    out_BHTE = torch.einsum("bhtc,cbhe->bhte", weights_BHTC, v_CBHE)
    if positions.value_SE is not None:
        out_BHTE = out_BHTE + by_distance(weights_BHTC, S) @ positions.value_SE.flip(0)
    out_TBHE = out_BHTE.permute(2, 0, 1, 3)
    return (out_TBHE, lse_BHT1.permute(2, 0, 1, 3)) if return_lse else out_TBHE


def reached_slots(reach_TB: Tensor, slots: int) -> Tensor:
    """Which of ``block_attention``'s slots each stream's steps reach: [B, 1, T, C]."""
    T, device = len(reach_TB), reach_TB.device
    distance_TC = slots - T + 1 + torch.arange(T, device=device)[:, None] - torch.arange(slots, device=device)
    return (distance_TC <= reach_TB.t()[:, :, None])[:, None]


def by_slot(x_TS: Tensor, slots: int) -> Tensor:
    """From distance to slot: column s of row t (distance S - s) goes to slot s + t; then the last ``slots`` columns.

    Slots that a row does not reach get zero. Shape [..., T, S] to [..., T, slots].
    """
    T, S = x_TS.shape[-2:]
    width = S + T - 1
    shifted = F.pad(x_TS, (0, T)).flatten(-2)[..., : T * width].unflatten(-1, (T, width))
    return shifted[..., width - slots :] if slots <= width else F.pad(shifted, (slots - width, 0))


def by_distance(x_TC: Tensor, span: int) -> Tensor:
    """The inverse of ``by_slot``: [..., T, C] to [..., T, S], column s for distance S - s."""
    T, C = x_TC.shape[-2:]
    width = span + T - 1
    x_TC = F.pad(x_TC, (width - C, 0))  # a negative pad crops slots that no query reaches
    return F.pad(x_TC.flatten(-2), (0, T)).unflatten(-1, (T, width + 1))[..., :span]
