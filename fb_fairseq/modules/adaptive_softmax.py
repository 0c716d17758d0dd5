"""Adaptive softmax (Grave et al. 2017, arXiv 1609.04309), which may share vectors and projections with adaptive input
embeddings; see ``adaptive_bands.py``.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``; M for any number of words or feature vectors, V for the vocabulary,
and for a band n words with vectors of width e.
"""

from collections.abc import Sequence

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

from fb_fairseq.modules.adaptive_bands import band_sizes, band_widths, words_of_band
from fb_fairseq.modules.adaptive_input import AdaptiveEmbedding


class TiedLinear(nn.Module):
    """A linear map without bias whose weight belongs to another module.

    Args:
        weight: [out, in], or [in, out] if transposed.
        transpose: whether it is.
    """

    def __init__(self, weight: nn.Parameter, transpose: bool = False):
        super().__init__()
        self.weight = weight
        self.transpose = transpose

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] mapped to [..., out]."""
        return F.linear(x, self.weight.t() if self.transpose else self.weight)


class TiedHead(nn.Module):
    """The head of a softmax that shares the vectors of its shortlist with an embedding.

    Args:
        vectors: of the shortlist's n words, [n, D].
        clusters: number of clusters.
    """

    def __init__(self, vectors: nn.Parameter, clusters: int):
        super().__init__()
        self.word_proj = TiedLinear(vectors)
        self.class_proj = nn.Linear(vectors.shape[1], clusters, bias=False)
        self.register_buffer("_float_tensor", torch.zeros(1))  # unused; fairseq's checkpoints have it

    def forward(self, x: Tensor) -> Tensor:
        """Logits [..., n + clusters] of features [..., D]."""
        return torch.cat([self.word_proj(x), self.class_proj(x)], -1)


class Bias(nn.Module):
    """Adds a vector, zero at first. ``size``: its size."""

    def __init__(self, size: int):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        """x [..., size] with the vector added."""
        return x + self.bias


class AdaptiveSoftmax(nn.Module):
    """Adaptive softmax: a head for the shortlist's words and the clusters, and a tail for the words of each cluster.

    Its losses, and the most probable words, are in ``adaptive_losses.py``.

    Args:
        vocabulary: number of words.
        width: the model's width D.
        cutoffs: the first word of each cluster.
        factor: by which the width shrinks from one band to the next.
        dropout: of the features (in ``forward``) and of their projections in the tails.
        bias: a bias for each word and cluster, as the published all-attention code has them: ``head.1.bias`` (the
            shortlist, then the clusters) and ``tail.{i}.3.bias``. fairseq's softmax has none.
        tied: the embedding whose vectors are shared; it has the same cut-offs and factor.
        tie_projections: share its projections too, except that of the shortlist, whose features are not projected.

    Attributes:
        cutoff: the first word after each band; ``cutoff[0]`` is the size of the shortlist.
        head, tail: modules for the logits of the head, and for those of each cluster.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        cutoffs: Sequence[int],
        *,
        factor: float,
        dropout: float,
        bias: bool = False,
        tied: AdaptiveEmbedding | None = None,
        tie_projections: bool = False,
    ):
        super().__init__()
        self.vocab_size = vocabulary
        self.cutoff = [*cutoffs, vocabulary]
        self.dropout_module = nn.Dropout(dropout)
        clusters = len(cutoffs)
        shortlist = self.cutoff[0]
        if tied is not None:
            self.head = TiedHead(tied.weights_for_band(0)[0], clusters)
        else:
            self.head = nn.Linear(width, shortlist + clusters, bias=False)
        self.tail = nn.ModuleList()
        sizes = band_sizes(self.cutoff)
        widths = band_widths(width, factor, len(self.cutoff))
        for band in range(1, len(self.cutoff)):
            if tie_projections:
                projection = TiedLinear(tied.weights_for_band(band)[1], transpose=True)
            else:
                projection = nn.Linear(width, widths[band], bias=False)
            if tied is not None:
                vectors = TiedLinear(tied.weights_for_band(band)[0])
            else:
                vectors = nn.Linear(widths[band], sizes[band], bias=False)
            self.tail.append(nn.Sequential(projection, nn.Dropout(dropout), vectors))
        if bias:
            self.head = nn.Sequential(self.head, Bias(shortlist + clusters))
            for tail, size in zip(self.tail, sizes[1:]):
                tail.append(Bias(size))
        self.reset_parameters()
        self.register_buffer("version", torch.ones(1, dtype=torch.long))  # unused; fairseq's checkpoints have it

    def reset_parameters(self) -> None:
        """Draw initial values of the weights that are not tied, from Xavier's uniform distribution; biases are zero."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
            elif isinstance(module, Bias):
                nn.init.zeros_(module.bias)

    def rows_of_clusters(self, target_M: Tensor) -> list[Tensor]:
        """For each cluster, the indices of the targets in it."""
        return [words_of_band(target_M, start, end) for start, end in zip(self.cutoff, self.cutoff[1:])]

    def forward(self, input: Tensor, target: Tensor) -> tuple[list[Tensor | None], list[Tensor | None]]:
        """Logits and targets of the head and of each tail.

        Args:
            input: features [..., D].
            target: [...].

        Returns:
            The logits of the head [M, shortlist + clusters], and of each tail for the targets of its cluster; and the
            targets among these logits. Both are None for a cluster without targets.
        """
        x_MD = self.dropout_module(input.reshape(-1, input.shape[-1]))
        target_M = target.flatten()
        head_target_M = target_M.clone()
        head_logits_MC = self.head(x_MD)
        tail_logits: list[Tensor | None] = []
        tail_targets: list[Tensor | None] = []
        for i, rows in enumerate(self.rows_of_clusters(target_M)):
            head_target_M[rows] = self.cutoff[0] + i
            tail_logits.append(self.tail[i](x_MD.index_select(0, rows)) if len(rows) else None)
            tail_targets.append(target_M[rows] - self.cutoff[i] if len(rows) else None)
        return [head_logits_MC, *tail_logits], [head_target_M, *tail_targets]

    def get_log_prob(self, input: Tensor, target: Tensor | None = None) -> Tensor:
        """Log-probabilities [B, T, V] of all words, at least in fp32.

        Args:
            input: features [B, T, D].
            target: [B, T]; compute a tail only where the target is in its cluster. Elsewhere all words of that tail
                get -inf.
        """
        x_MD = input.reshape(-1, input.shape[-1])
        head = log_softmax(self.head(x_MD))
        log_probs_MV = head.new_full((len(x_MD), self.vocab_size), -torch.inf)
        shortlist = self.cutoff[0]
        log_probs_MV[:, :shortlist] = head[:, :shortlist]
        rows = [slice(None)] * len(self.tail) if target is None else self.rows_of_clusters(target.flatten())
        for i, (tail, start, end) in enumerate(zip(self.tail, self.cutoff, self.cutoff[1:])):
            within = log_softmax(tail(x_MD[rows[i]]))
            log_probs_MV[rows[i], start:end] = within + head[rows[i], shortlist + i, None]
        return log_probs_MV.view(*input.shape[:-1], self.vocab_size)


def log_softmax(logits: Tensor) -> Tensor:
    """Log-softmax over the last dimension, at least in fp32."""
    return F.log_softmax(logits, -1, dtype=torch.promote_types(logits.dtype, torch.float32))
