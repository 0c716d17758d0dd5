"""Run a model that was trained with ``--labels``, to see in which part of a sequence it is right."""

from typing import NamedTuple

import numpy as np

from fb_fairseq.commands.plot.models import LoadedModel, progress
from fb_fairseq.errors import UserError

STREAMS, CONTEXT_SEQUENCES = 64, 1  # the defaults of evaluate-labels


class PositionCounts(NamedTuple):
    """Labels by position in their sequence, counted from 0; position 0 is the ``</s>`` before the sequence.

    Attributes:
        labels, correct: how many labels there are at each position, and how many are guessed.
    """

    labels: list[int]
    correct: list[int]


def accuracy_by_position(loaded: LoadedModel, split: str, tokens: int) -> PositionCounts:
    """Count labels and correct guesses by position, as ``evaluate-labels`` reads a split.

    Args:
        split: of the data that the model was loaded with.
        tokens: about how many tokens are read: whole sequences from the beginning of the split, at least one.
    """
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
