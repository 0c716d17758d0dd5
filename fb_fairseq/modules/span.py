"""Adaptive attention span: each head learns how far back it reaches (Sukhbaatar et al. 2019; v3 §7.6)."""

import math
from typing import List

import torch
import torch.nn as nn
from torch import Tensor

from fb_fairseq.modules.options import TransformerOptions
from fb_fairseq.ops.attention import span_mask

# In training, memory is kept this many slots further than the longest head reaches: spans may grow.
MARGIN = 64


class AdaptiveSpan(nn.Module):
    """``z`` [H] in [0, 1], in fp32: head h attends fully to the ``z S`` last steps, and less over the ramp R beyond."""

    def __init__(self, options: TransformerOptions):
        super().__init__()
        self.span = options.attention_span
        self.ramp = float(options.adaptive_span_ramp)
        self.z = nn.Parameter(torch.full((options.context_heads,), float(options.adaptive_span_init)))

    def mask(self, reach: int) -> Tensor:
        """The heads' masks of the distances 1 to ``reach``: [H, reach]."""
        return span_mask(self.z.to(torch.promote_types(self.z.dtype, torch.float32)), self.span, self.ramp)[:, :reach]

    def lengths(self) -> Tensor:
        """How many steps back each head reaches, ramp included: [H]."""
        return (self.z.detach().float() * self.span + self.ramp).clamp(max=self.span)

    def clamp(self) -> None:
        self.z.data.clamp_(0, 1)


def reaches(spans: List[AdaptiveSpan]) -> List[int]:
    """How many steps back each layer's longest head reaches; one transfer from the device for all."""
    longest = torch.stack([span.lengths().max() for span in spans]).tolist()
    return [max(1, min(span.span, math.ceil(length))) for span, length in zip(spans, longest)]
