"""The accuracy of a model that was trained on labels (``evaluate-labels``, ``plot``)."""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fb_fairseq.errors import UserError
from fb_fairseq.pretrained.model import LanguageModel
from fb_fairseq.printing import progress
from fb_fairseq.symbols import PAD

CONTEXT_SEQUENCES = 1  # that each stream reads before its own
STREAMS, BLOCK = 64, 64  # streams, and steps that are computed together; the latter changes nothing
UNLABELLED, WRONG, RIGHT = -1, 0, 1


class Span(NamedTuple):
    """The positions of a corpus that a stream reads.

    Attributes:
        begin: its first position.
        judged: the first position whose label it judges.
        end: the position after its last.
    """

    begin: int
    judged: int
    end: int


class PositionCounts(NamedTuple):
    """Labels by position in their sequence, counted from 0; position 0 is the ``</s>`` before the sequence.

    Attributes:
        labels: how many there are at each position.
        correct: how many of them are guessed.
    """

    labels: list[int]
    correct: list[int]


def judge(
    model: LanguageModel,
    corpus,
    streams: int,
    context: int | None = None,
    sequences: int | None = None,
) -> Tensor:
    """Guess the labels of a corpus.

    Args:
        model: one of ``--labels``.
        corpus: a ``LabelledCorpus``. Each of its sequences begins with ``</s>``.
        streams: number of streams; fewer if there are fewer sequences.
        context: number of sequences that a stream reads before its own, whose labels it does not judge. None: as in
            training: ``CONTEXT_SEQUENCES``; or each sequence is a stream of its own, as many at once as ``streams``.
        sequences: how many of the corpus's sequences, from its beginning; None: all.

    Returns:
        ``RIGHT``, ``WRONG`` or ``UNLABELLED`` for each position of these sequences.
    """
    ends = [0, *corpus.ends[:sequences].tolist()]
    number = len(ends) - 1
    if context is None and model.separate_sequences:
        spans = [Span(begin, begin, end) for begin, end in zip(ends, ends[1:])]
        batches = [spans[first : first + streams] for first in range(0, number, streams)]
    else:
        context = CONTEXT_SEQUENCES if context is None else context
        rows = min(streams, number)
        bounds = [row * number // rows for row in range(rows + 1)]
        batches = [
            [Span(ends[max(0, first - context)], ends[first], ends[last]) for first, last in zip(bounds, bounds[1:])]
        ]
    found = torch.cat([judge_streams(model, corpus, spans) for spans in batches])
    if not (found != UNLABELLED).any():
        raise UserError(f"{corpus.path}: none of its labels count; give another split (--gen-subset, plot --split)")
    return found


@torch.no_grad()
def judge_streams(model: LanguageModel, corpus, spans: list[Span]) -> Tensor:
    """Guess the labels of streams that begin with an empty memory.

    Args:
        model: see ``judge``.
        corpus: see there.
        spans: of each stream. Each judges what follows that of the stream before it.

    Returns:
        As ``judge``, for the positions that are judged.
    """
    inputs_BT = pad_sequence([corpus.block(span.begin, span.end)[0] for span in spans], True, PAD)
    state, guesses = None, []
    for first in progress(range(0, inputs_BT.shape[1], BLOCK), model.source):
        x_BTD = model.embed(inputs_BT[:, first : first + BLOCK].to(model.device), first)
        features_TBD, state = model.stack.run_block(x_BTD.transpose(0, 1), state)
        guesses.append(model.guess(features_TBD.transpose(0, 1)).cpu())
    judged = []
    for guesses_T, span in zip(torch.cat(guesses, 1), spans):
        _, labels = corpus.block(span.judged, span.end)
        is_right = guesses_T[span.judged - span.begin : span.end - span.begin] == labels
        judged.append(torch.where(labels == corpus.pad, UNLABELLED, is_right.long()))
    return torch.cat(judged)


def evaluate(model: LanguageModel, corpus, streams: int, context: int | None) -> dict[str, Any]:
    """Measure the accuracy of a language model on a ``LabelledCorpus``.

    Args:
        model, corpus, streams, context: see ``judge``.

    Returns:
        The percentage of correct labels, and of sequences in which no label is wrong; and the numbers of both.
    """
    found = judge(model, corpus, streams, context)
    labels = int((found != UNLABELLED).sum())
    sequences = len(corpus.ends)
    wrong = np.searchsorted(corpus.ends, (found == WRONG).nonzero()[:, 0].numpy(), side="right")  # their sequences
    return {
        "accuracy": 100 * int((found == RIGHT).sum()) / labels,
        "sequence_accuracy": 100 * (sequences - len(np.unique(wrong))) / sequences,
        "labels": labels,
        "sequences": sequences,
    }


def accuracy_by_position(model: LanguageModel, corpus, tokens: int) -> PositionCounts:
    """Count labels and correct guesses by position, reading a split as ``evaluate-labels`` does.

    Args:
        model: one of ``--labels``.
        corpus: a ``LabelledCorpus``.
        tokens: about how many are read: whole sequences from its beginning, at least one.
    """
    sequences = max(1, int(np.searchsorted(corpus.ends, tokens, side="right")))
    found = judge(model, corpus, STREAMS, sequences=sequences).numpy()
    lengths = np.diff(corpus.ends[:sequences], prepend=0)
    positions = np.concatenate([np.arange(length) for length in lengths])
    labels = np.bincount(positions[found != UNLABELLED])
    correct = np.bincount(positions[found == RIGHT], minlength=len(labels))
    return PositionCounts(labels.tolist(), correct.tolist())
