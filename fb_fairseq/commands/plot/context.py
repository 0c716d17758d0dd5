"""Run a language model with more and more context, to see how much of it helps."""

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fb_fairseq.commands.plot.attention import doubling_bins
from fb_fairseq.commands.plot.models import LoadedModel, progress
from fb_fairseq.errors import UserError

STREAMS, CONTEXT_SEQUENCES = 64, 1  # the defaults of evaluate-labels


class PositionCounts(NamedTuple):
    """Labels by position in their sequence, counted from 0; position 0 is the ``</s>`` before the sequence."""

    # how many labels there are at each position, and how many are guessed
    labels: list[int]
    correct: list[int]


def accuracy_by_position(loaded: LoadedModel, split: str, tokens: int) -> PositionCounts:
    """Count labels and correct guesses by position, as ``evaluate-labels`` reads a split. ``split``: of the data that
    the model was loaded with. ``tokens``: about how many tokens are read: whole sequences from the beginning of the
    split, at least one."""
    from fb_fairseq.commands.evaluate_labels import judged_blocks

    if not loaded.has_labels:
        raise UserError(f"{loaded.source}: was not trained with --labels; use --context-perplexity")
    loaded.task.args.valid_streams = 1  # load_dataset checks that there are enough sequences for them
    loaded.task.load_dataset(split)
    corpus = loaded.task.dataset(split).corpus
    sequences = max(1, int(np.searchsorted(corpus.ends, tokens, side="right")))
    length = int(np.diff(corpus.ends, prepend=0)[:sequences].max())
    labels, correct = np.zeros((2, length), dtype=int)
    pad, block = loaded.dictionary.pad(), loaded.task.args.tokens_per_sample
    blocks = judged_blocks(
        loaded.model, corpus, pad, STREAMS, CONTEXT_SEQUENCES, block, loaded.device, sequences=sequences
    )
    for judged in progress(blocks, loaded):
        labels += np.bincount(judged.positions[judged.is_label], minlength=length)
        correct += np.bincount(judged.positions[judged.is_right], minlength=length)
    if not labels.any():
        raise UserError(f"{corpus.path}: none of its labels count; give another --split")
    return PositionCounts(labels.tolist(), correct.tolist())


if TYPE_CHECKING:  # torch is imported only in the functions that need it
    from torch import Tensor

LONGEST = 1024  # tokens of context, unless --context says otherwise
BLOCK_STEPS = 64  # steps that are computed together
POSITIONS = 1 << 13  # of all rows that are computed at a time
SCORED_TOGETHER = 512  # positions whose probabilities of all words are computed at a time


class ContextLosses(NamedTuple):
    """Losses with more and more context."""

    bins: list[tuple[int, int]]  # the fewest and the most tokens of context, for each mean
    nats: list[float]  # the mean loss per token
    bytes: bool  # whether the tokens are bytes


def longest_context(asked: int | None, length: int) -> int:
    """The longest context that a text is read with, a power of two. ``asked``: ``--context``; None: as much as is
    reasonable. ``length``: of the text."""
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
        longest: see ``longest_context``."""
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
    """The summed loss, in nats, of segments that begin with an empty memory. ``rows_BT``: inputs and targets: each
    token but the last is an input, and the next token its target. ``fewest``: only targets with at least so many inputs
    before them count."""
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

    from fb_fairseq.modules.adaptive_words import adaptive_losses

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


MOST_PASSES = 40
STEPS = 512  # of a text, at most
LEAST_ERROR = 1e-6  # from here on, rounding decides


def errors_by_pass(loaded: LoadedModel, tokens_BT: "Tensor") -> list[float]:
    """The error of the memory after each of the parallel passes, relative to the norm of the step loop's memory.
    ``tokens_BT``: streams that begin with an empty memory; their first ``STEPS`` steps are run."""
    import torch

    from fb_fairseq.modules.feedback_transformer import FeedbackTransformer
    from fb_fairseq.ops.feedback.loops import AUTO, run_block
    from fb_fairseq.ops.feedback.parallel import ParallelBlock, relative_change
    from fb_fairseq.ops.feedback.types import FeedbackDropouts

    stack = loaded.stack
    if not isinstance(stack, FeedbackTransformer):
        raise UserError(f"{loaded.source}: has no feedback memory; give a checkpoint of feedback_transformer_lm")
    with torch.no_grad():
        x_TBD = loaded.model.decoder.embed(tokens_BT[:, :STEPS].to(loaded.device), 0).transpose(0, 1)
        empty_KCBD = x_TBD.new_zeros(stack.memory.memories, 0, *x_TBD.shape[1:])
        weights, options = stack.loop_weights(x_TBD.device, stack.reaches()), stack.loop_options(max(stack.reaches()))
        given = x_TBD, empty_KCBD, weights, options, FeedbackDropouts(), stack.active_layers(), (), None
        exact_KTBD, block, errors = run_block(AUTO, *given)[1], ParallelBlock(*given), []
        memory_KTBD = block.start_KTBD
        for _ in progress(range(min(MOST_PASSES, len(x_TBD))), loaded):
            memory_KTBD = block(memory_KTBD).memory_KTBD
            errors.append(float(relative_change(memory_KTBD, exact_KTBD)))
            if errors[-1] < LEAST_ERROR:
                break
    return errors
