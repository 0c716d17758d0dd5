"""Positions of language models: learned relative embeddings, or fixed absolute ones."""

import math

import torch
import torch.nn as nn
from torch import Tensor

from fb_fairseq.modules.options import TransformerOptions
from fb_fairseq.ops.attention import Positions

LONGEST_WAVELENGTH = 10_000  # in units of 2π steps, as in the paper
FIRST_POSITION = 2  # as in fairseq, where position 1 stands for padding


class RelativePositions(nn.Module):
    """Embeddings [S, E] of the distances 1 to S, shared by all heads and layers, initialised N(0, 1) as published.

    Attributes:
        key: added to keys (Feedback Transformer v3 §7.6; All-attention §3.1, Eq. 4); None without relative positions.
        value: added to values (All-attention, Eq. 4); None unless ``--relative-positions key-value``.
    """

    def __init__(self, options: TransformerOptions):
        super().__init__()
        shape = (options.attention_span, options.head_dim)
        for name in ("key", "value"):
            used = name in options.relative_positions.split("-")
            self.register_parameter(name, nn.Parameter(torch.randn(shape)) if used else None)

    def weights(self) -> Positions:
        """The embeddings as ``fb_fairseq.ops.attention`` takes them."""
        return Positions(self.key, self.value)


def sinusoids(positions: Tensor, like_D: Tensor, precision: torch.dtype = torch.float64) -> Tensor:
    """fairseq's sinusoidal embeddings [..., D] of positions [...], counted from 0, for streams of any length.

    Vaswani et al. 2017 §3.5, with all sines before all cosines.

    Args:
        like_D: a tensor of the width, type and device wanted.
        precision: in which they are computed. In float64 far positions are exact; fairseq computes in float32.
    """
    D = like_D.shape[-1]
    half = D // 2
    options = {"dtype": precision, "device": like_D.device}
    frequencies = torch.exp(torch.arange(half, **options) * -(math.log(LONGEST_WAVELENGTH) / max(half - 1, 1)))
    angles = (positions.to(**options) + FIRST_POSITION)[..., None] * frequencies
    embedding = torch.cat([angles.sin(), angles.cos(), angles.new_zeros(*positions.shape, D % 2)], -1)
    return embedding.to(like_D.dtype)
