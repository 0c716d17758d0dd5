"""Run a language model with more and more context, to see how much of it helps."""

import math
from typing import TYPE_CHECKING, NamedTuple

from fb_fairseq.commands.plot.bins import doubling_bins
from fb_fairseq.commands.plot.models import LoadedModel, progress
from fb_fairseq.errors import UserError

if TYPE_CHECKING:  # torch is imported only in the functions that need it
    from torch import Tensor

LONGEST = 1024  # tokens of context, unless --context says otherwise
BLOCK_STEPS = 64  # steps that are computed together
POSITIONS = 1 << 13  # of all rows that are computed at a time
SCORED_TOGETHER = 512  # positions whose probabilities of all words are computed at a time


class ContextLosses(NamedTuple):
    """Losses with more and more context.

    Attributes:
        bins: the fewest and the most tokens of context, for each mean.
        nats: the mean loss per token.
        bytes: whether the tokens are bytes.
    """

    bins: list[tuple[int, int]]
    nats: list[float]
    bytes: bool


def longest_context(asked: int | None, length: int) -> int:
    """The longest context that a text is read with, a power of two.

    Args:
        asked: ``--context``; None: as much as is reasonable.
        length: of the text.
    """
    possible = 2 ** int(math.log2(max(1, length // 2)))
    if asked is None:
        asked = min(LONGEST, possible)
    if asked < 1 or asked & (asked - 1):
        raise UserError(f"--context {asked}: must be a power of two, for example {LONGEST}")
    if asked > possible or length < 2:
        raise UserError(f"--context {asked}: the split has only {length} tokens; give {possible} or less, or more text")
    return asked


def losses_by_context(loaded: LoadedModel, corpus, tokens: int, longest: int) -> ContextLosses:
    """The mean loss of the same tokens with more and more context.

    For each bin of contexts, the text is read in segments that begin with an empty memory, cut so that every token of
    the text is predicted once with a context of the bin. So the means differ by the context only.

    Args:
        corpus: a ``Corpus``. Predicted are the tokens from ``longest`` on.
        tokens: how many tokens are predicted for each bin; at least, half of ``longest``.
        longest: see ``longest_context``.
    """
    bins = doubling_bins(longest)
    widest = bins[-1][1] - bins[-1][0] + 1
    predicted = max(widest, min(tokens, len(corpus) - longest) // widest * widest)
    text_T = corpus[0 : longest + predicted]
    pieces = []
    for i, (fewest, most) in enumerate(bins):
        windows = text_T[longest - fewest :].unfold(0, most + 1, most - fewest + 1)
        pieces += [(i, rows) for rows in windows.split(max(1, POSITIONS // most))]
    nats = [0.0] * len(bins)
    for i, rows in progress(pieces, loaded):
        nats[i] += segment_loss(loaded, rows, bins[i][0]) / predicted
    return ContextLosses(bins, nats, bool(getattr(loaded.task, "byte_data", False)))


def segment_loss(loaded: LoadedModel, rows_BT: "Tensor", fewest: int) -> float:
    """The summed loss, in nats, of segments that begin with an empty memory.

    Args:
        rows_BT: inputs and targets: each token but the last is an input, and the next token its target.
        fewest: only targets with at least so many inputs before them count.
    """
    import torch

    decoder, state, total = loaded.model.decoder, None, 0.0
    inputs_BT, targets_BT = rows_BT[:, :-1].to(loaded.device), rows_BT[:, 1:].to(loaded.device)
    with torch.no_grad():
        for first in range(0, inputs_BT.shape[1], BLOCK_STEPS):
            block = slice(first, first + BLOCK_STEPS)
            x_TBD = decoder.embed(inputs_BT[:, block], first).transpose(0, 1)
            features_TBD, state = decoder.stack.run_block(x_TBD, state)
            uncounted = max(0, fewest - 1 - first)
            features_MD = features_TBD[uncounted:].transpose(0, 1).flatten(0, 1)
            targets_M = targets_BT[:, block][:, uncounted:].flatten()
            for part in zip(features_MD.split(SCORED_TOGETHER), targets_M.split(SCORED_TOGETHER)):
                total += summed_loss(decoder, *part)
    return total


def summed_loss(decoder, features_MD: "Tensor", targets_M: "Tensor") -> float:
    """The summed loss of targets, in nats, given the decoder's features."""
    import torch
    import torch.nn.functional as F

    from fb_fairseq.modules.adaptive_softmax import adaptive_losses

    if not len(targets_M):
        return 0.0
    if decoder.adaptive_softmax is None:
        losses_M = F.cross_entropy(decoder.output_layer(features_MD).float(), targets_M, reduction="none")
    else:
        counted_1M = torch.ones_like(targets_M, dtype=torch.bool)[None]
        losses_M, _ = adaptive_losses(
            decoder.adaptive_softmax, features_MD[None], targets_M[None], counted_1M, training=True
        )
    return losses_M.double().sum().item()
