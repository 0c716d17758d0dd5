"""Adaptive spans (Sukhbaatar et al. 2019, arXiv 1905.07799): each head learns how far back it looks.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn as nn
from torch import Tensor

from fb_fairseq.modules.interface import Report
from fb_fairseq.modules.options import TransformerOptions
from fb_fairseq.ops.products import at_least_fp32
from fb_fairseq.ops.span_masks import span_mask


class AdaptiveSpan(nn.Module):
    """The parameter ``z`` [H] in [0, 1]: head h attends fully to the last ``z S + 1`` steps, and less and less to
    the R steps before them. Spans are computed in fp32 at least.
    """

    def __init__(self, options: TransformerOptions):
        super().__init__()
        self.span = options.attention_span
        self.ramp = float(options.adaptive_span_ramp)
        self.z = nn.Parameter(torch.full((options.context_heads,), float(options.adaptive_span_init)))

    def mask(self, reach: int) -> Tensor:
        """The heads' soft masks for the distances 1 to ``reach``, [H, reach]."""
        return span_mask(at_least_fp32(self.z), self.span, self.ramp)[:, :reach]

    def lengths(self) -> Tensor:
        """The heads' spans in steps, ramp included: [H]."""
        return (self.z.detach().float() * self.span + self.ramp).clamp(max=self.span)


def longest_spans(spans: Sequence[AdaptiveSpan]) -> list[int]:
    """The span of each layer's longest head, in steps."""
    longest = torch.stack([span.lengths().max() for span in spans]).tolist()  # one transfer for all layers
    return [max(1, math.ceil(length)) for length in longest]


def span_report(spans: Sequence[AdaptiveSpan], weight: float | None) -> Report:
    """Average and longest span, in steps; in training the penalty, in nats per target: ``λ S mean(z)``, summed over
    layers (Feedback Transformer v3 §7.6).

    Args:
        spans: of all layers, at least one.
        weight: λ; None: no penalty.
    """
    lengths = torch.stack([span.lengths() for span in spans])
    logged = {"avg_span": lengths.mean(), "max_span": lengths.max()}
    if weight is None:
        return Report(logged)
    means = torch.stack([span.z.float().mean() for span in spans])
    return Report(logged, weight * spans[0].span * means.sum())
