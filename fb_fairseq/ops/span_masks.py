"""The soft masks of adaptive spans (Sukhbaatar et al. 2019, arXiv 1905.07799), and the softmax under them."""

from typing import NamedTuple

import torch
from torch import Tensor

# Stands for -∞ where a soft mask is zero, as a fraction of the lowest number: low enough to vanish beside any score in
# a softmax, and still finite when a score is added to it.
MASKED_FRACTION = 1 / 4


def span_mask(z_H: Tensor, span: int, ramp: float) -> Tensor:
    """The heads' soft masks by distance [H, S]: column d - 1 is ``clamp((R + z S - (d - 1)) / R, 0, 1)``.

    Sukhbaatar et al. 2019, §3.2, as used by the Feedback Transformer (v3 §7.6).

    Args:
        z_H: each head's span as a fraction of S.
        span: S, in steps.
        ramp: R, the number of steps over which the mask falls from 1 to 0.
    """
    steps_S = torch.arange(span, device=z_H.device, dtype=z_H.dtype)
    return ((ramp + z_H[:, None] * span - steps_S) / ramp).clamp(0, 1)


def span_softmax(scores: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax under a soft mask: ``mask exp(scores) / Σ mask exp(scores)`` over the last dimension.

    Slots whose mask is zero have no effect at all: leaving them out gives the same result.

    Returns:
        The weights, and the logarithm of the sum [..., 1]. Where the mask is zero everywhere, the weights are zero, and
        the logarithm is the lowest number (the gradient of -∞ would be NaN).
    """
    scores = scores.masked_fill(mask == 0, torch.finfo(scores.dtype).min)
    top = scores.detach().amax(-1, keepdim=True)
    exp = mask * (scores - top).exp()
    total = exp.sum(-1, keepdim=True)
    total = total.masked_fill(total == 0, 1)
    return exp / total, top + total.log()


class SpanTerms(NamedTuple):
    """A span mask for kernels that add to the scores instead of multiplying exponentials.

    Attributes:
        log_mask_HS: to be added to the scores: the mask's logarithm; where the mask is zero, a very low number.
        outside_HS: True where the mask is zero.
    """

    log_mask_HS: Tensor
    outside_HS: Tensor


def span_terms(mask_HS: Tensor) -> SpanTerms:
    """The terms of a span mask [H, S]."""
    outside_HS = mask_HS == 0
    lowest = torch.finfo(mask_HS.dtype).min * MASKED_FRACTION
    return SpanTerms(mask_HS.log().masked_fill(outside_HS, lowest), outside_HS)
