"""Embeddings and positions, before the layers of a translation model's encoder and decoder, by fairseq's names.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

from fb_fairseq.errors import UserError
from fb_fairseq.modules.affine import norm
from fb_fairseq.modules.options import EncoderOptions
from fb_fairseq.modules.positions import sinusoids
from fb_fairseq.ops.layers import layer_norm


class TokenPositions(nn.Module):
    """Absolute positions, sinusoidal or learned. They are counted from 1; 0 stands for padding.

    Args:
        learned: whether they are learned.
        positions: number of learned positions.
        width: D.
        padding_idx: the symbol of padding.
        option: the option that limits positions, for the error message.

    Attributes:
        weight: the learned ones, [positions + padding_idx + 1, D]: fairseq's table, where position p is row
            ``padding_idx + p``. None: positions are sinusoidal.
    """

    def __init__(self, learned: bool, positions: int, width: int, padding_idx: int, option: str):
        super().__init__()
        self.positions, self.padding_idx, self.option = positions, padding_idx, option
        table = torch.empty(positions + padding_idx + 1, width).normal_(std=width**-0.5) if learned else None
        self.register_parameter("weight", None if table is None else nn.Parameter(table))

    def forward(self, positions: Tensor, like_D: Tensor) -> Tensor:
        """Embeddings [..., D] of positions [...]; sinusoids in the type of ``like_D``, learned ones in their own."""
        if self.weight is None:
            return sinusoids(positions - 1, like_D, torch.float32)  # as fairseq's table
        last = int(positions.max()) if positions.numel() else 0
        if last > self.positions:
            raise UserError(
                f"the text has {last} tokens, but the model has positions for only {self.positions} ({self.option}); "
                "give a shorter text"
            )
        return F.embedding(positions + self.padding_idx, self.weight)


class Embedder(nn.Module):
    """Base of encoder and decoder: what is before their layers, by fairseq's names.

    Args:
        options: of positions, scale, norm and dropout; a decoder has those of its encoder.
        embed_tokens: the embeddings.
        learned: whether positions are learned, or sinusoidal.
        positions: number of learned positions.
        option: the option that limits positions, for the error message.
    """

    def __init__(self, options: EncoderOptions, embed_tokens: nn.Embedding, learned: bool, positions: int, option: str):
        super().__init__()
        width, padding_idx = embed_tokens.embedding_dim, embed_tokens.padding_idx
        self.embed_tokens = embed_tokens
        self.embed_positions = None
        if not options.no_token_positional_embeddings:
            self.embed_positions = TokenPositions(learned, positions, width, padding_idx, option)
        self.embed_scale = 1.0 if options.no_scale_embedding else width**0.5
        self.layernorm_embedding = nn.LayerNorm(width) if options.layernorm_embedding else None
        self.embedding_dropout = options.dropout

    def embed(self, tokens_BT: Tensor, positions: Tensor) -> Tensor:
        """Embeddings [B, T, D] of tokens at positions [B, T] or [T], counted from 1 (0: padding)."""
        x = self.embed_scale * self.embed_tokens(tokens_BT)
        if self.embed_positions is not None:
            x = x + self.embed_positions(positions, x.new_empty(x.shape[-1]))
        x = layer_norm(x, self.layernorm_embedding and norm(self.layernorm_embedding))
        return F.dropout(x, self.embedding_dropout, self.training)
