"""Measure the accuracy of a model that was trained on labels (--task streaming_lm --labels).

    python -m fb_fairseq evaluate-labels DATA-BIN --path checkpoints/checkpoint_best.pt [--gen-subset test] [--out FILE]

Prints the accuracy of labels, and the share of sequences in which all labels are correct; the last line is JSON.

Sequences are read as in training. With --task streaming_lm that is one after the other, in parallel streams, and a
memory is hardly ever empty when a sequence begins: so each stream first reads the sequence before its first one
(--context-sequences), without counting its labels. A tracker (state-tracking export) reads each with an empty memory.
"""

import json
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fb_fairseq import patches  # noqa: F401  before fairseq is used
from fb_fairseq.command_line import CommandParser, add_overwrite
from fb_fairseq.errors import UserError, flag
from fb_fairseq.files import check_output_file, write_json
from fb_fairseq.literals import parse_literal
from fb_fairseq.modules.adaptive_words import adaptive_guess

NAME = "evaluate-labels"
CONTEXT_SEQUENCES = 1  # that each stream reads before its own


class Accuracy(NamedTuple):
    """The results; the fields are also the keys of the JSON line."""

    accuracy: float  # percentage of correct labels
    sequence_accuracy: float  # percentage of sequences in which all labels are correct (or that have no labels)
    labels: int  # number of labels
    sequences: int  # number of sequences


class LabelledStreams(NamedTuple):
    """A labelled corpus, cut into B streams that are padded on the right to T steps."""

    inputs: Tensor  # input symbols [B, T]
    labels: Tensor  # label of each symbol [B, T]; padding where none counts
    sequences: Tensor  # index in the corpus of the sequence that each symbol belongs to [B, T]; 0 in the padding
    positions: Tensor  # position of each symbol in its sequence [B, T]; 0 is ``</s>``, and the padding


class Judged(NamedTuple):
    """The guesses in a block of labelled streams; all [B, T]."""

    is_label: Tensor  # where a label counts
    is_right: Tensor  # where the guess equals a label that counts
    # see ``LabelledStreams``
    sequences: Tensor
    positions: Tensor


def cut_into_streams(corpus, pad: int, streams: int, context: int, begin: int, end: int) -> LabelledStreams:
    """Cut sequences of a corpus into streams with equal numbers of them.

    Args:
        corpus: a ``LabelledCorpus``. Each of its sequences begins with ``</s>``.
        pad: padding symbol of inputs and labels.
        streams: number of streams B, at most that of sequences.
        context: number of sequences that a stream reads before its own; their labels are padding.
        begin, end: the first of the corpus's sequences, and the one after the last."""
    ends = np.concatenate([[0], corpus.inputs.ends])
    bounds = [begin + b * (end - begin) // streams for b in range(streams + 1)]
    ranges = [(max(0, first - context), first, last) for first, last in zip(bounds, bounds[1:])]
    steps = max(int(ends[last] - ends[start]) for start, _, last in ranges)
    inputs, labels = torch.full((2, streams, steps), pad)
    indices, positions = torch.zeros(2, streams, steps, dtype=torch.long)
    for row, (start, first, last) in enumerate(ranges):
        begin, end = int(ends[start]), int(ends[last])
        inputs[row, : end - begin], labels[row, : end - begin] = corpus.block(begin, end)
        labels[row, : ends[first] - begin] = pad
        lengths = np.diff(ends[start : last + 1])
        indices[row, : end - begin] = torch.from_numpy(np.repeat(np.arange(start, last), lengths))
        positions[row, : end - begin] = torch.from_numpy(np.concatenate([np.arange(length) for length in lengths]))
    return LabelledStreams(inputs, labels, indices, positions)


def best_guesses(decoder, features_BTD: Tensor) -> Tensor:
    """The most probable labels [B, T], given the decoder's features."""
    outputs = decoder.output_layer(features_BTD)
    if decoder.adaptive_softmax is None:
        return outputs.argmax(-1)
    return adaptive_guess(decoder.adaptive_softmax, outputs.flatten(0, 1)).view(outputs.shape[:2])


def judged_blocks(
    model, corpus, pad: int, streams: int, context: int | None, block: int, device, sequences: int | None = None
) -> Iterator[Judged]:
    """Guess the labels of a ``LabelledCorpus`` with a language model of this package, block by block.

    Args:
        streams: number of streams; fewer if there are fewer sequences.
        context: see ``cut_into_streams``; None: each sequence is a stream of its own, as many at once as ``streams``.
        block: number of steps that are computed together.
        sequences: how many of the corpus's sequences, from its beginning; None: all."""
    number = len(corpus.inputs.ends[:sequences])
    together = number if context is not None else streams
    for begin in range(0, number, together):
        end = min(begin + together, number)
        data = cut_into_streams(corpus, pad, min(streams, end - begin), context or 0, begin, end)
        yield from judge(model, data, pad, block, device)


def judge(model, data: LabelledStreams, pad: int, block: int, device) -> Iterator[Judged]:
    """Guess the labels of streams that begin with an empty memory, block by block; see ``judged_blocks``."""
    decoder, state = model.decoder, None
    for first in range(0, data.inputs.shape[1], block):
        columns = slice(first, first + block)
        tokens, labels = data.inputs[:, columns].to(device), data.labels[:, columns]
        with torch.no_grad():
            features_TBD, state = decoder.stack.run_block(decoder.embed(tokens, first).transpose(0, 1), state)
            guesses = best_guesses(decoder, features_TBD.transpose(0, 1)).cpu()
        is_label = labels.ne(pad)
        is_right = guesses.eq(labels) & is_label
        yield Judged(is_label, is_right, data.sequences[:, columns], data.positions[:, columns])


def evaluate(model, corpus, pad: int, streams: int, context: int | None, block: int, device) -> Accuracy:
    """Measure the accuracy of a language model of this package on a ``LabelledCorpus``. ``streams``, ``context``,
    ``block``: see ``judged_blocks``."""
    sequences = len(corpus.inputs.ends)
    counted = correct = 0
    wrong = torch.zeros(sequences, dtype=torch.bool)
    for judged in judged_blocks(model, corpus, pad, streams, context, block, device):
        counted, correct = counted + int(judged.is_label.sum()), correct + int(judged.is_right.sum())
        wrong[judged.sequences[judged.is_label & ~judged.is_right]] = True
    if not counted:
        raise UserError(f"{corpus.path}: none of its labels count; give another split with --gen-subset")
    right = sequences - int(wrong.sum())
    return Accuracy(100 * correct / counted, 100 * right / sequences, counted, sequences)


def build_parser() -> CommandParser:
    """The command's options."""
    parser = CommandParser(NAME, description=__doc__)
    parser.add_argument("data", metavar="DATA-BIN", help="folder that fairseq-preprocess wrote")
    parser.add_argument("--path", required=True, metavar="CHECKPOINT", help="checkpoint of the model")
    parser.add_argument("--gen-subset", default="test", metavar="SPLIT", help="split to read (default: %(default)s)")
    parser.add_argument("--streams", type=int, default=64, metavar="N", help="parallel streams (default: %(default)s)")
    parser.add_argument(
        "--context-sequences",
        type=int,
        metavar="N",
        help="read several sequences one after the other, and in each stream except the first so many before its own, "
        "without counting their labels; with 0, each stream begins with an empty memory, as in validation (default: as "
        f"in training: {CONTEXT_SEQUENCES}; of a tracker, each sequence is a stream of its own)",
    )
    parser.add_argument("--tokens-per-sample", type=int, metavar="M", help="steps of a block (default: as in training)")
    parser.add_argument(
        "--model-overrides",
        default="{}",
        metavar="DICT",
        help="replace options of training, as in fairseq-eval-lm: with \"{'attention_span': 900}\", a model without "
        "relative positions sees further than in training",
    )
    parser.add_argument("--out", metavar="FILE", help="also write the JSON line to this file")
    add_overwrite(parser)
    parser.add_argument("--cpu", action="store_true", help="use the CPU even if there is a GPU")
    return parser


def load_and_evaluate(args) -> Accuracy:
    """Evaluate the checkpoint on the data that the options name."""
    from fb_fairseq.commands.plot.models import load_model

    overrides = parse_literal(args.model_overrides)
    if not isinstance(overrides, dict):
        raise UserError(f"--model-overrides {args.model_overrides}: not a dictionary such as {{'attention_span': 900}}")
    loaded = load_model("--path", args.path, args.data, args.cpu, **overrides)
    if not loaded.has_labels:
        raise UserError(f"--path {args.path}: was not trained with --labels; use fairseq-eval-lm")
    task = loaded.task
    task.load_dataset(args.gen_subset)
    corpus, block = task.dataset(args.gen_subset).corpus, args.tokens_per_sample or task.args.tokens_per_sample
    pad, context = loaded.dictionary.pad(), args.context_sequences
    context = context_of(task) if context is None else context
    return evaluate(loaded.model, corpus, pad, args.streams, context, block, loaded.device)


def context_of(task) -> int | None:
    """How a model of this task reads sequences, as in its training; see ``judged_blocks``."""
    return None if task.args.separate_sequences else CONTEXT_SEQUENCES


def main(argv=None) -> None:
    """Run the command; see ``--help``."""
    parser = build_parser()
    args = parser.parse_args(argv)
    for name, lowest in (("streams", 1), ("context_sequences", 0), ("tokens_per_sample", 1)):
        value = getattr(args, name)
        if value is not None and value < lowest:
            parser.error(f"{flag(name)} {value}: must be {lowest} or more")
    with parser.one_line_errors():
        if args.out:
            check_output_file("--out", args.out, NAME, args.overwrite)
        result = load_and_evaluate(args)
    if args.out:
        with parser.one_line_errors():
            write_json(args.out, NAME, result._asdict())
    print(f"labels:    {result.accuracy:.2f}% of {result.labels} correct")
    print(f"sequences: {result.sequence_accuracy:.2f}% of {result.sequences} correct")
    print(json.dumps(result._asdict()))
