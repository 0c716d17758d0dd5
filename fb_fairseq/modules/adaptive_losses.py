"""Losses and most probable words of an adaptive softmax, without computing the probability of every word.

Grave et al. 2017, "Efficient softmax approximation for GPUs" (arXiv 1609.04309). The head gives the probabilities of
the most frequent words (the shortlist) and of clusters of rarer words; a tail per cluster gives the probabilities of
its words, given the cluster:

    log p(word) = log p_head(word)                                  for a word of the shortlist
    log p(word) = log p_head(cluster) + log p_tail(word | cluster)  for other words

The softmax is ``fb_fairseq.modules.adaptive_softmax.AdaptiveSoftmax``, or fairseq's own. Its ``head`` and ``tail[i]``
compute logits, ``cutoff[0]`` is the size of the shortlist, and cluster i consists of the words from ``cutoff[i]`` up
to, not including, ``cutoff[i + 1]``.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``; M for any number of feature vectors.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

CHUNK = 1024  # positions for which predictions are computed at a time; limits the memory for the logits of all words


def adaptive_losses(
    softmax: nn.Module, features_BTD: Tensor, target_BT: Tensor, counted_BT: Tensor, training: bool
) -> tuple[Tensor, Tensor | None]:
    """Negative log-likelihood of each target, in nats and fp32.

    Args:
        softmax: an ``AdaptiveSoftmax``, or fairseq's.
        features_BTD: the model's features.
        target_BT: the words to predict.
        counted_BT: False where the target is padding.
        training: do not compute which targets are predicted correctly, which takes time.

    Returns:
        The losses [B * T], zero for padding, and whether each target is the most probable word [B, T] (None in
        training).
    """
    kept = counted_BT.flatten().nonzero().squeeze(1)
    logits, targets = softmax(features_BTD.flatten(0, 1)[kept], target_BT.flatten()[kept])
    kept_losses = F.cross_entropy(logits[0].float(), targets[0], reduction="none")
    for i in range(1, len(logits)):
        if targets[i] is not None:
            in_cluster = (targets[0] == softmax.cutoff[0] + i - 1).nonzero().squeeze(1)
            tail_losses = F.cross_entropy(logits[i].float(), targets[i], reduction="none")
            kept_losses = kept_losses.index_add(0, in_cluster, tail_losses)
    losses = kept_losses.new_zeros(counted_BT.numel()).index_copy(0, kept, kept_losses)
    if training:
        return losses, None
    guesses = torch.cat([adaptive_guess(softmax, part) for part in features_BTD.flatten(0, 1).split(CHUNK)])
    return losses, guesses.view_as(target_BT).eq(target_BT)


def adaptive_guess(softmax: nn.Module, features_MD: Tensor) -> Tensor:
    """The most probable word [M] for each feature vector.

    ``softmax``: see ``adaptive_losses``.

    A tail is computed only where its cluster is more probable than the best word so far, because no word is more
    probable than its cluster.
    """
    shortlist = softmax.cutoff[0]
    head = F.log_softmax(softmax.head(features_MD).float(), -1)
    best, guess = head[:, :shortlist].max(-1)
    for i, tail in enumerate(softmax.tail):
        rows = (head[:, shortlist + i] > best).nonzero().squeeze(1)
        within_cluster, word = F.log_softmax(tail(features_MD[rows]).float(), -1).max(-1)
        log_prob = head[rows, shortlist + i] + within_cluster
        better = log_prob > best[rows]
        best[rows[better]] = log_prob[better]
        guess[rows[better]] = word[better] + softmax.cutoff[i]
    return guess
