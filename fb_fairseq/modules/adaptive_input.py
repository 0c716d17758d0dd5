"""Adaptive input embeddings (Baevski & Auli 2019, arXiv 1809.10853); see ``adaptive_bands.py``.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``; M for any number of words or feature vectors, V for the vocabulary,
and for a band n words with vectors of width e.
"""

from collections.abc import Sequence

import torch
import torch.nn as nn
from torch import Tensor

from fb_fairseq.errors import UserError
from fb_fairseq.modules.adaptive_bands import band_sizes, band_widths, words_of_band
from fb_fairseq.ops.tracing import is_tracing


class AdaptiveEmbedding(nn.Module):
    """Adaptive input embeddings.

    The vectors of band i are ``embeddings.{i}.0.weight`` [n, e], their projection ``embeddings.{i}.1.weight`` [D, e].

    Args:
        vocabulary: number of words.
        padding_idx: the word whose vector is zero and is not trained; in the first band.
        width: the model's width D.
        factor: by which the width shrinks from one band to the next.
        cutoffs: the first word of each band except the first one.
    """

    def __init__(self, vocabulary: int, padding_idx: int, width: int, factor: float, cutoffs: Sequence[int]):
        super().__init__()
        self.cutoff = [*cutoffs, vocabulary]
        self.embedding_dim = width
        self.padding_idx = padding_idx
        sizes = band_sizes(self.cutoff)
        widths = band_widths(width, factor, len(self.cutoff))
        self.embeddings = nn.ModuleList(
            nn.Sequential(nn.Embedding(n, e, None if i else padding_idx), nn.Linear(e, width, bias=False))
            for i, (n, e) in enumerate(zip(sizes, widths))
        )
        self.reset_parameters()
        self.register_buffer("_float_tensor", torch.zeros(1))  # unused; fairseq's checkpoints have it

    def reset_parameters(self) -> None:
        """Draw initial values: vectors from N(0, 1/e), projections from Xavier's uniform distribution."""
        for vectors, projection in self.embeddings:
            nn.init.normal_(vectors.weight, std=vectors.embedding_dim**-0.5)
            # In every band, as in fairseq; only in the first one is this row the padding's, and remains zero.
            nn.init.zeros_(vectors.weight[self.padding_idx : self.padding_idx + 1])
            nn.init.xavier_uniform_(projection.weight)

    def weights_for_band(self, band: int) -> tuple[Tensor, Tensor]:
        """The vectors [n, e] of a band and their projection [D, e]."""
        vectors, projection = self.embeddings[band]
        return vectors.weight, projection.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Embeddings [..., D] of tokens [...], in the parameters' type.

        Under autocast only the projections run in half precision. Bands without tokens get no gradients.
        """
        if is_tracing():
            raise UserError(
                "--adaptive-input: which bands run depends on the words, which torch.jit.trace and torch.export cannot "
                "record; use torch.compile"
            )
        words_M = tokens.flatten()
        places = [words_M[:0]]
        found = [self.embeddings[0][0].weight.new_empty(0, self.embedding_dim)]
        for start, end, embedding in zip([0, *self.cutoff], self.cutoff, self.embeddings):
            place_n = words_of_band(words_M, start, end)
            if len(place_n):
                places.append(place_n)
                found.append(embedding(words_M[place_n] - start))
        x_MD = torch.cat(found).index_select(0, torch.cat(places).argsort())  # cat promotes to the parameters' type
        return x_MD.view(*tokens.shape, self.embedding_dim)
