"""Measure the accuracy of a model that was trained on labels (--task streaming_lm --labels).

    fb-fairseq evaluate-labels DATA-BIN --path checkpoints/checkpoint_best.pt [--gen-subset test] [--out FILE]

Prints the accuracy of labels, and the share of sequences in which all labels are correct; the last line is JSON.

Sequences are read as in training. With --task streaming_lm that is one after the other, in parallel streams, and a
memory is hardly ever empty when a sequence begins: so each stream first reads the sequence before its first one
(--context-sequences), without counting its labels. A tracker (state-tracking export) reads each with an empty memory.
"""

import json
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fb_fairseq.command_line import CommandParser, add_overwrite
from fb_fairseq.commands.read_model import read_language_model
from fb_fairseq.commands.texts import load_data, progress
from fb_fairseq.errors import UserError
from fb_fairseq.files import check_output_file, write_json
from fb_fairseq.pretrained.model import LanguageModel
from fb_fairseq.symbols import PAD

NAME = "evaluate-labels"
CONTEXT_SEQUENCES = 1  # that each stream reads before its own
STREAMS, BLOCK = 64, 64  # streams, and steps that are computed together; the latter changes nothing
UNLABELLED, WRONG, RIGHT = -1, 0, 1


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
    together = number
    if context is None and model.separate_sequences:
        together = streams
        context = 0
    elif context is None:
        context = CONTEXT_SEQUENCES
    parts = []
    for begin in range(0, number, together):
        end = min(begin + together, number)
        rows = min(streams, end - begin)
        bounds = [begin + row * (end - begin) // rows for row in range(rows + 1)]
        spans = [(ends[max(0, first - context)], ends[first], ends[last]) for first, last in zip(bounds, bounds[1:])]
        parts.append(judge_streams(model, corpus, spans))
    found = torch.cat(parts)
    if not (found != UNLABELLED).any():
        raise UserError(f"{corpus.path}: none of its labels count; give another split (--gen-subset, plot --split)")
    return found


@torch.no_grad()
def judge_streams(model: LanguageModel, corpus, spans: list[tuple[int, int, int]]) -> Tensor:
    """Guess the labels of streams that begin with an empty memory.

    Args:
        model: see ``judge``.
        corpus: see there.
        spans: of each stream, its first position in the corpus, the first that it judges, and the one after its last.
            Each stream judges what follows that of the stream before it.

    Returns:
        As ``judge``, for the positions that are judged.
    """
    inputs_BT = pad_sequence([corpus.block(start, last)[0] for start, _, last in spans], True, PAD)
    state, guesses = None, []
    for first in progress(range(0, inputs_BT.shape[1], BLOCK), model):
        x_BTD = model.embed(inputs_BT[:, first : first + BLOCK].to(model.device), first)
        features_TBD, state = model.stack.run_block(x_BTD.transpose(0, 1), state)
        guesses.append(model.guess(features_TBD.transpose(0, 1)).cpu())
    judged = []
    for guesses_T, (start, own, last) in zip(torch.cat(guesses, 1), spans):
        _, labels = corpus.block(own, last)
        is_right = guesses_T[own - start : last - start] == labels
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
    """Count labels and correct guesses by position, reading a split as this command does.

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


def build_parser() -> CommandParser:
    """The command's options."""
    parser = CommandParser(NAME, description=__doc__)
    parser.add_argument("data", metavar="DATA-BIN", help="folder that fairseq-preprocess wrote")
    parser.add_argument(
        "--path", required=True, metavar="CHECKPOINT", help="checkpoint of the model, or its exported folder"
    )
    parser.add_argument("--gen-subset", default="test", metavar="SPLIT", help="split to read (default: %(default)s)")
    parser.add_argument(
        "--streams", type=int, default=STREAMS, metavar="N", help="parallel streams (default: %(default)s)"
    )
    parser.add_argument(
        "--context-sequences",
        type=int,
        metavar="N",
        help="read several sequences one after the other, and in each stream except the first so many before its own, "
        "without counting their labels; with 0, each stream begins with an empty memory, as in validation (default: as "
        f"in training: {CONTEXT_SEQUENCES}; of a tracker, each sequence is a stream of its own)",
    )
    parser.add_argument("--out", metavar="FILE", help="also write the JSON line to this file")
    add_overwrite(parser)
    parser.add_argument("--cpu", action="store_true", help="use the CPU even if there is a GPU")
    return parser


def load_and_evaluate(args) -> dict[str, Any]:
    """Evaluate the model on the data that the options name."""
    model = read_language_model(args.path, args.data, args.cpu, "--path")
    if not model.labels:
        raise UserError(f"--path {args.path}: was not trained with --labels; use fairseq-eval-lm")
    corpus = load_data(model, args.data, args.gen_subset)
    return evaluate(model, corpus, args.streams, args.context_sequences)


def main(argv=None) -> None:
    """Run the command; see ``--help``."""
    parser = build_parser()
    args = parser.parse_args(argv)
    parser.check_least(args, streams=1, context_sequences=0)
    with parser.one_line_errors():
        if args.out:
            check_output_file("--out", args.out, NAME, args.overwrite)
        result = load_and_evaluate(args)
        if args.out:
            write_json(args.out, NAME, result)
    print("labels:    {accuracy:.2f}% of {labels} correct".format(**result))
    print("sequences: {sequence_accuracy:.2f}% of {sequences} correct".format(**result))
    print(json.dumps(result))
