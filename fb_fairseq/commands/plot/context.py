"""How well language models predict the same tokens with more and more context."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fb_fairseq.commands.plot.measures import BLOCK_STEPS, doubling_bins
from fb_fairseq.errors import UserError
from fb_fairseq.pretrained.model import LanguageModel
from fb_fairseq.printing import progress

POSITIONS = 1 << 13  # positions of all rows that are computed at a time
SCORED_TOGETHER = 512  # positions whose probabilities of all words are computed at a time


class ContextLosses(NamedTuple):
    """How well the same tokens are predicted with more and more context.

    Attributes:
        bins: the fewest and the most tokens of context, for each mean.
        values: perplexities, or of byte models bits per byte.
        unit: what a token is called: "byte" or "token".
    """

    bins: list[tuple[int, int]]
    values: list[float]
    unit: str


def losses_by_context(model: LanguageModel, corpus, tokens: int, longest: int) -> ContextLosses:
    """The mean loss of the same tokens with more and more context.

    For each bin of contexts, the text is read in segments that begin with an empty memory, cut so that every token of
    the text is predicted once with a context of the bin. So the means differ by the context only.

    Args:
        corpus: a ``Corpus``. Predicted are the tokens after the longest context.
        tokens: how many tokens are predicted for each bin; at least, half of the longest context.
        longest: the longest context, at most. It is a power of two, and at most half of the text.
    """
    if len(corpus) < 2:
        raise UserError(f"{model.source}: needs two tokens or more to read; give another --split of --data")
    longest = 1 << (min(longest, len(corpus) // 2).bit_length() - 1)
    bins = doubling_bins(longest)
    widest = bins[-1][1] - bins[-1][0] + 1
    predicted = max(widest, min(tokens, len(corpus) - longest) // widest * widest)
    text_T = corpus[0 : longest + predicted]
    values = []
    for fewest, most in progress(bins, model.source):
        segments = text_T[longest - fewest :].unfold(0, most + 1, most - fewest + 1)
        parts = segments.split(max(1, POSITIONS // most))
        nats = sum(segment_loss(model, rows, fewest) for rows in parts) / predicted
        values.append(nats / math.log(2) if model.vocabulary.of_bytes else math.exp(nats))
    return ContextLosses(bins, values, model.vocabulary.unit)


@torch.no_grad()
def segment_loss(model: LanguageModel, rows_BT: Tensor, fewest: int) -> float:
    """The summed loss, in nats, of segments that begin with an empty memory.

    Args:
        rows_BT: inputs and targets: each token but the last is an input, and the next token its target.
        fewest: only targets with at least so many inputs before them count.
    """
    state, total = None, 0.0
    inputs_BT = rows_BT[:, :-1].to(model.device)
    targets_BT = rows_BT[:, 1:]
    for first in range(0, inputs_BT.shape[1], BLOCK_STEPS):
        block = slice(first, first + BLOCK_STEPS)
        x_TBD = model.embed(inputs_BT[:, block], first).transpose(0, 1)
        features_TBD, state = model.stack.run_block(x_TBD, state)
        uncounted = max(0, fewest - 1 - first)
        features_MD = features_TBD[uncounted:].transpose(0, 1).flatten(0, 1)
        total += losses(model, features_MD, targets_BT[:, block][:, uncounted:].flatten()).double().sum().item()
    return total


def losses(model: LanguageModel, features_MD: Tensor, targets_M: Tensor) -> Tensor:
    """The loss [M] of each target, in nats, on the CPU.

    Args:
        features_MD: of the stack, at the steps whose next tokens the targets are.
    """
    parts = zip(features_MD.split(SCORED_TOGETHER), targets_M.split(SCORED_TOGETHER))
    found = [model.log_probs(part[None])[0].cpu().gather(1, targets[:, None]) for part, targets in parts]
    return -torch.cat(found)[:, 0]
