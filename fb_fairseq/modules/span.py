"""Adaptive attention span: each head learns how far back it reaches (Sukhbaatar et al. 2019; v3 §7.6)."""

import math

import torch
import torch.nn as nn
from torch import Tensor

from fb_fairseq.modules.options import TransformerOptions
from fb_fairseq.ops.attention import span_mask
from fb_fairseq.ops.layers import at_least_fp32

# In training, memory is carried this many steps beyond the longest head's span: spans may grow from block to block.
TRAINING_MARGIN = 64


class AdaptiveSpan(nn.Module):
    """The parameter ``z`` [H] in [0, 1]: head h attends fully to the last ``z S`` steps, and less over the ramp R
    beyond.

    The spans are computed in fp32 at least.
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
        """How many steps back each head reaches, ramp included: [H]."""
        return (self.z.detach().float() * self.span + self.ramp).clamp(max=self.span)

    def clamp(self) -> None:
        """Bring z back to [0, 1], in place."""
        self.z.data.clamp_(0, 1)


def adaptive_spans(module: nn.Module) -> list[AdaptiveSpan]:
    """All adaptive spans of a model, which may be wrapped for distributed training."""
    return [part for part in module.modules() if isinstance(part, AdaptiveSpan)]


def reaches(spans: list[AdaptiveSpan]) -> list[int]:
    """How many steps back each layer's longest head reaches, with one transfer from the device for all layers."""
    longest = torch.stack([span.lengths().max() for span in spans]).tolist()
    return [max(1, min(span.span, math.ceil(length))) for span, length in zip(spans, longest)]
