"""Accuracy of a model that was trained on labels (``--task streaming_lm --labels``): of labels, and of whole sequences.

    python -m fb_fairseq evaluate-labels DATA-BIN --path checkpoints/checkpoint_best.pt [--gen-subset test] [--out FILE]

The sequences are read as in training, one after the other along some streams. In
training hardly a sequence is read with an empty memory; so here a stream first
reads the one before its own, as if all were one stream. A sequence is right if all
of its labels are. The last line is JSON.
"""

import argparse
import json
import os
from typing import NamedTuple

import numpy as np
import torch

from fb_fairseq import patches  # noqa: F401  before fairseq is used
from fb_fairseq.errors import UserError
from fb_fairseq.ops.adaptive_softmax import adaptive_guess


class Accuracy(NamedTuple):
    """Percentages, and of how many labels and sequences. Sequences without a label count as right."""

    accuracy: float
    sequence_accuracy: float
    labels: int
    sequences: int


def streams_of(corpus, pad: int, streams: int, context: int):
    """A labelled corpus as inputs and labels [B, T], padded on the right, and the number [B, T] of each label's sequence.
    Each sequence begins with ``</s>``; before a stream's first one it reads ``context`` others, whose labels are padding."""
    ends = np.concatenate([[0], corpus.inputs.ends])
    sequences = len(ends) - 1
    bounds = [b * sequences // streams for b in range(streams + 1)]  # in sequences
    parts = [(max(0, first - context), first, last) for first, last in zip(bounds, bounds[1:])]
    length = max(int(ends[last] - ends[before]) for before, _, last in parts)
    inputs, labels = torch.full((2, streams, length), pad)
    numbers = torch.zeros(streams, length, dtype=torch.long)
    for row, (before, first, last) in enumerate(parts):
        start, stop = int(ends[before]), int(ends[last])
        inputs[row, : stop - start], labels[row, : stop - start] = corpus.block(start, stop)
        labels[row, : ends[first] - start] = pad
        sizes = torch.from_numpy(np.diff(ends[before : last + 1]))
        numbers[row, : stop - start] = torch.arange(before, last).repeat_interleave(sizes)
    return inputs, labels, numbers


@torch.no_grad()
def evaluate(model, corpus, pad: int, streams: int, context: int, block: int, device) -> Accuracy:
    """Of a language model of this package on a ``LabelledCorpus``; ``streams`` and ``context`` as of ``streams_of``."""
    decoder, state = model.decoder, None
    sequences = len(corpus.inputs.ends)
    inputs, labels, numbers = streams_of(corpus, pad, min(streams, sequences), context)
    counted = correct = 0
    wrong = torch.zeros(sequences, dtype=torch.bool)
    for first in range(0, inputs.shape[1], block):
        columns = slice(first, first + block)
        tokens, wanted = inputs[:, columns].to(device), labels[:, columns]
        features_TBD, state = decoder.run_block(decoder.embed(tokens, first).transpose(0, 1), state)
        outputs = decoder.output_layer(features_TBD.transpose(0, 1))
        if decoder.adaptive_softmax is None:
            guess = outputs.argmax(-1)
        else:
            guess = adaptive_guess(decoder.adaptive_softmax, outputs.flatten(0, 1)).view_as(tokens)
        is_label = wanted.ne(pad)
        is_right = guess.cpu().eq(wanted) & is_label
        counted, correct = counted + int(is_label.sum()), correct + int(is_right.sum())
        wrong[numbers[:, columns][is_label & ~is_right]] = True
    if not counted:
        raise UserError(f"{corpus.path}: there is no label that counts")
    right = sequences - int(wrong.sum())
    return Accuracy(100 * correct / counted, 100 * right / sequences, counted, sequences)


def main(argv=None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m fb_fairseq evaluate-labels",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("data", metavar="DATA-BIN", help="folder that fairseq-preprocess wrote")
    parser.add_argument("--path", required=True, metavar="CHECKPOINT")
    parser.add_argument("--gen-subset", default="test", metavar="SPLIT", help="split (default: %(default)s)")
    parser.add_argument("--streams", type=int, default=64, help="that are read side by side (default: %(default)s)")
    parser.add_argument(
        "--context-sequences",
        type=int,
        default=1,
        metavar="N",
        help="that each stream but the first reads before those that count (default: %(default)s; 0, as in validation: each "
        "begins with an empty memory)",
    )
    parser.add_argument("--tokens-per-sample", type=int, metavar="M", help="steps of a block (default: as in training)")
    parser.add_argument("--out", metavar="FILE", help="also write the JSON line there")
    parser.add_argument("--cpu", action="store_true", help="even where there is a GPU")
    args = parser.parse_args(argv)
    for name, lowest in (("streams", 1), ("context_sequences", 0), ("tokens_per_sample", 1)):
        if getattr(args, name) is not None and getattr(args, name) < lowest:
            parser.error(f"--{name.replace('_', '-')} {getattr(args, name)}: give {lowest} or more")
    if not os.path.isfile(args.path):
        parser.error(f"--path {args.path}: no such file; give a checkpoint")
    from fairseq import checkpoint_utils

    import fb_fairseq.models  # noqa: F401
    import fb_fairseq.tasks  # noqa: F401

    try:
        (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(
            [args.path], arg_overrides={"data": args.data}
        )
        if not getattr(task.args, "labels", False):
            raise UserError(f"--path {args.path}: was not trained with --labels; use fairseq-eval-lm")
        task.load_dataset(args.gen_subset)
        device = torch.device("cuda" if torch.cuda.is_available() and not args.cpu else "cpu")
        result = evaluate(
            model.eval().to(device),
            task.dataset(args.gen_subset).corpus,
            task.source_dictionary.pad(),
            args.streams,
            args.context_sequences,
            args.tokens_per_sample or task.args.tokens_per_sample,
            device,
        )
    except UserError as error:
        parser.error(str(error))
    print(f"labels:    {result.accuracy:.2f} % of {result.labels} right")
    print(f"sequences: {result.sequence_accuracy:.2f} % of {result.sequences} right")
    line = json.dumps(result._asdict())
    if args.out:
        with open(args.out, "w") as file:
            file.write(line + "\n")
    print(line)


if __name__ == "__main__":
    main()
