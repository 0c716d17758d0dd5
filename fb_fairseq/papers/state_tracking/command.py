"""State tracking: train a model on sequences with a label for each step, and test it on longer ones.

    fb-fairseq state-tracking train --group A5 --model feedback --out runs/a5/feedback

``fb-fairseq benchmark tracking`` measures the models' speed. docs/state-tracking.md explains the tasks, and
shows what came out.
"""

import json
import os
from dataclasses import asdict
from typing import Any

import torch

from fb_fairseq.command_line import CommandParser, add_overwrite
from fb_fairseq.errors import UserError
from fb_fairseq.files import atomic_write
from fb_fairseq.folders import check_output_folder
from fb_fairseq.hardware import training_hardware
from fb_fairseq.papers.state_tracking.architectures import ARCHITECTURES, parameters
from fb_fairseq.papers.state_tracking.evaluation import GOOD, evaluate, longest_good
from fb_fairseq.papers.state_tracking.options import Options, add_options, given_options
from fb_fairseq.papers.state_tracking.trainer import RESULT_FILE, Trainer


def build_parser() -> CommandParser:
    """The parser of ``state-tracking`` and its subcommands."""
    parser = CommandParser("state-tracking", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    train = commands.add_parser("train", help="train a model, or resume, and test it")
    train.add_argument("--out", required=True, metavar="DIR", help=f"folder of checkpoint.pt and {RESULT_FILE}")
    text = "end training after so many minutes, before its last update; the same command goes on"
    train.add_argument("--minutes", type=float, metavar="N", help=text)
    add_options(train)
    devices = ("cuda", "cpu") if torch.cuda.is_available() else ("cpu",)
    train.add_argument("--device", choices=devices, default=devices[0], help="where to train (default: %(default)s)")
    text = "write a Feedback Transformer that was trained on a word problem as export does; see fb_fairseq.pretrained"
    export = commands.add_parser("export", help=text)
    export.add_argument("run", metavar="DIR", help="folder of its training")
    export.add_argument("--to", required=True, metavar="DIR", help="folder to write")
    add_overwrite(export)
    return parser


def train(options: Options, out: str, device: torch.device, minutes: float | None = None) -> None:
    """Train a model, test it, and write OUT/result.json. On a CPU with one thread, unless OMP_NUM_THREADS says
    otherwise: the matrices are small, and several threads would wait for each other.

    Args:
        options: what is trained.
        out: the folder.
        device: where.
        minutes: of training, at most.
    """
    if device.type == "cpu" and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    trainer = Trainer(options, device)
    print(f"{ARCHITECTURES[options.model].title}: {parameters(trainer.model.body):,} parameters in its layers")
    trainer.train(out, lambda line: print(line, flush=True), minutes)
    result = result_of(trainer)
    if minutes is not None and trainer.update < options.updates:
        result["ended"] = f"by --minutes {minutes:g}, before update {options.updates:,}"
        print(f"ended {result['ended']}: the figures are those of update {trainer.update:,}")
    with atomic_write(os.path.join(out, RESULT_FILE)) as temporary, open(temporary, "w") as file:
        json.dump(result, file)
    what = trainer.growth.size
    good = f"at least {100 * GOOD:.0f} % right up to {what} {result['longest_good']}"
    print(
        f"trained up to {what} {trainer.size}; {good}; "
        f"{result['flawless']:.1%} of the longest sequences without a mistake"
    )


def result_of(trainer: Trainer) -> dict[str, Any]:
    """Test a trained model: its result, with what it was trained with."""
    model, sequences, options = trainer.model, trainer.sequences, trainer.options
    valid = evaluate(model, sequences, options, "valid")["accuracy"]
    tested = evaluate(model, sequences, options)
    return {
        **asdict(options),
        "updates": trainer.update,
        "title": ARCHITECTURES[options.model].title,
        "span": options.shape(1).span,
        "parameters": parameters(model.body),
        "learned": trainer.size,
        "valid_accuracy": round(sum(valid) / len(valid), 5),
        "longest_good": longest_good(tested["sizes"], tested["accuracy"]),
        **{**tested, "accuracy": [round(value, 5) for value in tested["accuracy"]]},
        "seconds": round(trainer.seconds),
        "hardware": training_hardware(),
    }


def main(argv: list[str] | None = None) -> None:
    """Run ``fb-fairseq state-tracking``; ``argv``: its words, the program's own by default."""
    parser = build_parser()
    args = parser.parse_args(argv)
    # transformers would tell of kernels that are not installed, and of token indices that are not used.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    with parser.one_line_errors():
        if args.command == "export":
            from fb_fairseq.papers.state_tracking.export import export

            print(f"{args.to}: {', '.join(export(args.run, args.to, args.overwrite))}")
            return
        options = given_options(args)
        if args.minutes is not None and not args.minutes > 0:
            raise UserError(f"--minutes {args.minutes:g}: give a number above 0")
        check_output_folder("--out", args.out)
        train(options, args.out, torch.device(args.device), args.minutes)
