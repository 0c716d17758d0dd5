"""Positions in language models: learned relative embeddings, or fixed absolute ones."""

import math

import torch
import torch.nn as nn
from torch import Tensor

from fb_fairseq.modules.options import TransformerOptions
from fb_fairseq.ops.attention import Positions


class RelativePositions(nn.Module):
    """Embeddings [S, E] of the distances 1 to S, shared by all heads and layers, initialised N(0, 1) as published.

    Feedback Transformer v3 §7.6; All-attention §3.1, Eq. 4 (values as well as keys).
    """

    def __init__(self, options: TransformerOptions):
        super().__init__()
        shape = (options.attention_span, options.head_dim)
        for name in ("key", "value"):
            used = name in options.relative_positions.split("-")
            self.register_parameter(name, nn.Parameter(torch.randn(shape)) if used else None)

    def weights(self) -> Positions:
        """The tables; None where there is none."""
        return Positions(self.key, self.value)


def sinusoidal_positions(start: int, steps: int, like_D: Tensor) -> Tensor:
    """fairseq's sinusoidal embeddings [T, D] of the positions start … start + T - 1 of a stream of any length.

    Vaswani et al. 2017 §3.5, sines and cosines in halves; fairseq's first position is 2.
    """
    D = like_D.shape[-1]
    half = D // 2
    options = {"dtype": torch.float64, "device": like_D.device}
    frequencies = torch.exp(torch.arange(half, **options) * -(math.log(10000) / max(half - 1, 1)))
    angles = (torch.arange(start, start + steps, **options) + 2)[:, None] * frequencies
    embedding = torch.cat([angles.sin(), angles.cos(), angles.new_zeros(steps, D % 2)], 1)
    return embedding.to(like_D.dtype)
