"""Measure the accuracy of a model that was trained on labels (--task streaming_lm --labels).

    fb-fairseq evaluate-labels DATA-BIN --path checkpoints/checkpoint_best.pt [--gen-subset test] [--out FILE]

Prints the accuracy of labels, and the share of sequences in which no label is wrong; the last line is JSON.

Sequences are read as in training. With --task streaming_lm that is one after the other, in parallel streams, and a
memory is hardly ever empty when a sequence begins: so each stream first reads the sequence before its first one
(--context-sequences), without counting its labels. A tracker (state-tracking export) reads each with an empty memory.
"""

import json
from typing import Any

from fb_fairseq.command_line import CommandParser, add_cpu, add_overwrite
from fb_fairseq.commands.label_accuracy import CONTEXT_SEQUENCES, STREAMS, evaluate
from fb_fairseq.commands.read_model import read_language_model
from fb_fairseq.commands.texts import load_data
from fb_fairseq.errors import UserError
from fb_fairseq.files import check_output_file, write_json

NAME = "evaluate-labels"


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
        help="read several sequences one after the other; each stream but the first reads N more before its own, whose "
        "labels do not count; with 0, each stream begins with an empty memory, as in validation (default: as "
        f"in training: {CONTEXT_SEQUENCES}; of a tracker, each sequence is a stream of its own)",
    )
    parser.add_argument("--out", metavar="FILE", help="also write the JSON line to this file")
    add_overwrite(parser)
    add_cpu(parser)
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
