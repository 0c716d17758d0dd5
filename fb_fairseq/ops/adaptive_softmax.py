"""Loss and best guess of an adaptive softmax (Grave et al. 2017), exactly."""

import torch
import torch.nn.functional as F


def adaptive_losses(softmax, features, target, counted, training: bool, rows: int = 1024):
    """Negative log-likelihoods [B * T] of an ``AdaptiveSoftmax``, zero for padding, and which were guessed right [B, T]
    (None in training: it costs time).

    A word of a tail cluster costs its cluster's, and its own within the cluster.
    """
    kept = counted.flatten().nonzero().squeeze(1)
    logits, targets = softmax(features.flatten(0, 1)[kept], target.flatten()[kept])
    kept_losses = F.cross_entropy(logits[0].float(), targets[0], reduction="none")
    for i in range(1, len(logits)):
        if targets[i] is not None:
            inside = (targets[0] == softmax.cutoff[0] + i - 1).nonzero().squeeze(1)
            within = F.cross_entropy(logits[i].float(), targets[i], reduction="none")
            kept_losses = kept_losses.index_add(0, inside, within)
    losses = kept_losses.new_zeros(counted.numel()).index_copy(0, kept, kept_losses)
    if training:
        return losses, None
    guesses = torch.cat([adaptive_guess(softmax, chunk) for chunk in features.flatten(0, 1).split(rows)])
    return losses, guesses.view_as(target).eq(target)


def adaptive_guess(softmax, features_ND):
    """The most probable words [N] of an ``AdaptiveSoftmax``.

    A cluster is looked into only where all of it is more probable than the best word so far.
    """
    shortlist = softmax.cutoff[0]
    head = F.log_softmax(softmax.head(features_ND).float(), -1)
    best, guess = head[:, :shortlist].max(-1)
    for i, tail in enumerate(softmax.tail):
        rows = (head[:, shortlist + i] > best).nonzero().squeeze(1)
        within, word = F.log_softmax(tail(features_ND[rows]).float(), -1).max(-1)
        score = head[rows, shortlist + i] + within
        better = score > best[rows]
        best[rows[better]] = score[better]
        guess[rows[better]] = word[better] + softmax.cutoff[i]
    return guess
