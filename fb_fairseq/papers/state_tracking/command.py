"""State tracking: train a model on sequences with a label for each step, and test it on longer ones.

    python -m fb_fairseq state-tracking train --group A5 --model feedback --out runs/a5/feedback
    python -m fb_fairseq state-tracking speed --models "feedback transformer lstm"

docs/state-tracking.md explains the tasks, and shows what came out.
"""

import argparse
import json
import os
from dataclasses import asdict, fields

import torch

from fb_fairseq.command_line import CommandParser, add_overwrite
from fb_fairseq.errors import UserError, flag
from fb_fairseq.files import atomic_write, check_output_file, check_output_folder, check_own_folder, write_json
from fb_fairseq.hardware import training_hardware
from fb_fairseq.meaning import SPECIAL
from fb_fairseq.papers.state_tracking.architectures import ARCHITECTURES, parameters
from fb_fairseq.papers.state_tracking.evaluation import evaluate, longest_good, measure
from fb_fairseq.papers.state_tracking.problems import PROBLEMS
from fb_fairseq.papers.state_tracking.trainer import CHECKPOINT_FILE, CURRICULA, Options, Trainer
from fb_fairseq.papers.toy_tasks.word_problem import GROUPS, named
from fb_fairseq.tensor_files import load_file
from fb_fairseq.trained_model import PREFIX, TrainedModel

RESULT_FILE = "result.json"
SPEED, EXPORT = "state-tracking-speed", "state-tracking-export"  # as writers of files
NEVER = -1e4  # logit of a label that is none


def build_parser() -> CommandParser:
    """The parser of ``state-tracking`` and its subcommands."""
    parser = CommandParser("state-tracking", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    train = commands.add_parser("train", help="train a model, or resume, and test it")
    train.add_argument("--out", required=True, metavar="DIR", help=f"folder of checkpoint.pt and {RESULT_FILE}")
    text = "end training after so long, before its last update; the same command goes on"
    train.add_argument("--minutes", type=float, metavar="N", help=text)
    _add_options(train)
    speed = commands.add_parser("speed", help="measure steps per second of training and decoding")
    speed.add_argument("--models", metavar='"NAME …"', help="models to measure (default: all that run here)")
    speed.add_argument("--seconds", type=float, default=2.0, help="of each measurement (default: %(default)s)")
    speed.add_argument("--out", metavar="FILE", help="JSON file for the results")
    add_overwrite(speed)
    _add_options(speed, "model")
    text = "write a Feedback Transformer that was trained on a word problem as export does; see fb_fairseq.pretrained"
    export = commands.add_parser("export", help=text)
    export.add_argument("run", metavar="DIR", help="folder of its training")
    export.add_argument("--to", required=True, metavar="DIR", help="folder to write")
    add_overwrite(export)
    for command in (train, speed):
        command.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="cpu or cuda")
    return parser


def _add_options(parser: argparse.ArgumentParser, *left_out: str) -> None:
    for option in fields(Options):
        if option.name not in left_out:
            kind, text = type(option.default), f"{option.metadata['help']} (default: %(default)s)"
            parser.add_argument(flag(option.name), type=kind, default=option.default, help=text)


def check(options: Options) -> None:
    """Check the options."""
    for name, known in (("task", PROBLEMS), ("group", GROUPS), ("model", ARCHITECTURES), ("curriculum", CURRICULA)):
        value = getattr(options, name)
        if value not in known:
            raise UserError(f"{flag(name)} {value}: unknown; choose from {', '.join(known)}")
    for option in fields(options):
        value, lowest = getattr(options, option.name), option.metadata["lowest"]
        lowest = PROBLEMS[options.task].smallest if option.name == "longest" else lowest
        if lowest is not None and value < lowest:
            raise UserError(f"{flag(option.name)} {value}: give {lowest} or more")
        if isinstance(value, float) and not value > 0:
            raise UserError(f"{flag(option.name)} {value}: give a number above 0")
    if options.width % options.heads:
        raise UserError(f"--heads {options.heads}: does not divide --width {options.width}; give a number that does")
    if options.task == "recall" and options.symbols < 8 * options.longest:
        raise UserError(
            f"--symbols {options.symbols}: tests have {4 * options.longest} keys, and half of the symbols are keys; "
            f"give {8 * options.longest} or more"
        )


def device_of(name: str) -> torch.device:
    """The device of ``--device``."""
    if name not in ("cpu", "cuda") or name == "cuda" and not torch.cuda.is_available():
        raise UserError(f"--device {name}: not there; give cpu" + (", or cuda" if torch.cuda.is_available() else ""))
    return torch.device(name)


def train(options: Options, out: str, device: torch.device, minutes: float | None = None) -> None:
    """Train a model, test it, and write OUT/result.json. On a CPU with one thread, unless OMP_NUM_THREADS says
    otherwise: the matrices are small, and several threads would wait for each other."""
    if device.type == "cpu" and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    trainer = Trainer(options, device)
    print(f"{ARCHITECTURES[options.model].title}: {parameters(trainer.model.body):,} parameters in its layers")
    trainer.train(out, lambda line: print(line, flush=True), minutes)
    model, sequences = trainer.model, trainer.sequences
    valid = evaluate(model, sequences, options, "valid")["accuracy"]
    tested = evaluate(model, sequences, options)
    result = {
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
    if minutes is not None and trainer.update < options.updates:
        result["ended"] = f"by --minutes {minutes:g}, before update {options.updates:,}"
        print(f"ended {result['ended']}: the figures are those of update {trainer.update:,}")
    with atomic_write(os.path.join(out, RESULT_FILE)) as temporary, open(temporary, "w") as file:
        json.dump(result, file)
    size = trainer.problem.size
    print(
        f"trained up to {size} {trainer.size}; at least 90 % right up to {size} {result['longest_good']}; "
        f"{tested['flawless']:.1%} of the longest sequences without a mistake"
    )


def export(run: str, folder: str, overwrite: bool) -> list[str]:
    """Write a model as ``python -m fb_fairseq export`` does. Inputs and labels have one dictionary, the group's
    elements; special symbols, such as the ``</s>`` before a text, are read as the neutral one. Returns the files."""
    from fb_fairseq.commands.export.models import write_folder

    check_own_folder("--to", folder, EXPORT, overwrite)
    path = os.path.join(run, CHECKPOINT_FILE)
    options = Options(**load_file(path)["options"])
    if (options.task, options.model) != ("word_problem", "feedback"):
        raise UserError(f"{run}: {options.task} with {options.model}; give a run of word_problem with feedback")
    trainer = Trainer(options, torch.device("cpu"))
    trainer.resume(path)
    tagger, symbols = trainer.model, [*SPECIAL, *named(options.group).elements]
    words, output = tagger.embedding.weight, tagger.classifier
    neutral_ND = words[:1].expand(len(SPECIAL), -1)
    made = {
        **{f"{PREFIX}{name}": value for name, value in tagger.body.stack.state_dict().items()},
        f"{PREFIX}embed_tokens.weight": torch.cat([neutral_ND, words]),
        f"{PREFIX}output_projection.weight": torch.cat([torch.zeros_like(neutral_ND), output.weight]),
        f"{PREFIX}output_projection.bias": torch.cat([output.bias.new_full((len(SPECIAL),), NEVER), output.bias]),
    }
    with open(os.path.join(run, RESULT_FILE), encoding="utf-8") as file:
        result = json.load(file)
    if result["updates"] != trainer.update:
        raise UserError(
            f"{run}: {CHECKPOINT_FILE} is of update {trainer.update:,}, {RESULT_FILE} of {result['updates']:,}; run "
            "the same training again, until it ends"
        )
    values = ((field.name, getattr(options, field.name), field.default) for field in fields(options))
    words = [f"{flag(name)} {value}" for name, value, default in values if value != default]
    tested = f"{result['flawless']:.2%} without a mistake, {result['slips']:.1e} slips per step"
    notes = [
        ("task", f"the product so far of elements of {options.group}, each written as the images of 1, 2, …"),
        ("command", f"`python -m fb_fairseq state-tracking train --out DIR {' '.join(words)}`"),
        ("seed, hardware, time", f"{options.seed}; {result['hardware']}; {result['seconds']} s"),
        (f"test, {options.test_sequences:,} sequences of {len(result['sizes'])}", tested),
    ]
    if "ended" in result:
        notes.append(("ended", result["ended"]))
    trained = TrainedModel(
        run,
        {"arch": "feedback_transformer_lm", **asdict(tagger.body.stack.options)},
        made,
        task={"labels": True, "separate_sequences": True},
        symbols=dict.fromkeys(("dict.input.txt", "dict.label.txt"), symbols),
        facts={"updates": trainer.update, "notes": notes},
    )
    return write_folder(EXPORT, folder, trained, overwrite=overwrite, dtype="bfloat16")


def speed(args: argparse.Namespace, options: Options, device: torch.device) -> None:
    """Measure models one after the other."""
    names = args.models.split() if args.models else list(ARCHITECTURES)
    results = {}
    for name in names:
        one = Options(**{**asdict(options), "model": name})
        check(one)
        results[name] = {key: round(value) for key, value in measure(one, device, args.seconds).items()}
        found = ", ".join(f"{key} {value:,}" for key, value in results[name].items())
        print(f"{ARCHITECTURES[name].title}: {found} steps/s", flush=True)
    if args.out:
        write_json(args.out, SPEED, {"hardware": training_hardware(), "steps_per_second": results})


def main(argv=None) -> None:
    """Run ``python -m fb_fairseq state-tracking``."""
    parser = build_parser()
    args = parser.parse_args(argv)
    with parser.one_line_errors():
        if args.command == "export":
            print(f"{args.to}: {', '.join(export(args.run, args.to, args.overwrite))}")
            return
        options = Options(**{f.name: getattr(args, f.name) for f in fields(Options) if hasattr(args, f.name)})
        device = device_of(args.device)
        # transformers would tell of kernels that are not installed, and of token indices that are not used.
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
        if args.command == "speed":
            if args.out:
                check_output_file("--out", args.out, SPEED, args.overwrite)
            if args.seconds <= 0:
                raise UserError(f"--seconds {args.seconds}: give a number above 0")
            speed(args, options, device)
            return
        check(options)
        if args.minutes is not None and not args.minutes > 0:
            raise UserError(f"--minutes {args.minutes:g}: give a number above 0")
        check_output_folder("--out", args.out)
        train(options, args.out, device, args.minutes)
