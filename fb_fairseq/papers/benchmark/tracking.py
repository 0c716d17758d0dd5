"""State tracking: steps per second of training, and of decoding one sequence, of the models of ``state-tracking``.

Training is an update on the longest sequences; decoding is step by step. The models take turns.
"""

import argparse
from functools import partial

import torch

from fb_fairseq.papers.benchmark.tables import table
from fb_fairseq.papers.benchmark.timing import measure
from fb_fairseq.papers.benchmark.work import Work, repeated
from fb_fairseq.papers.state_tracking.architectures import ARCHITECTURES
from fb_fairseq.papers.state_tracking.options import Options, add_options, given_options
from fb_fairseq.papers.state_tracking.trainer import Trainer

DECODED = 64  # steps


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    text = "models to measure (default: all)"
    parser.add_argument("--models", nargs="+", choices=ARCHITECTURES, default=list(ARCHITECTURES), help=text)
    add_options(parser, "model", "updates", "curriculum")


def run(args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Measure the models. Returns steps per second in "training" and "decoding" of each."""
    device = torch.device(args.device)
    found: dict[str, dict[str, float]] = {name: {} for name in args.models}
    for phase, make in {"training": training, "decoding": decoding}.items():
        # With a mixed curriculum, each update would draw a size; of so many updates, none changes the learning rate.
        options = [given_options(args, model=name, updates=10**9, curriculum="growing") for name in args.models]
        makers = [partial(make, own, device) for own in options]
        rates = measure(makers, device.type, args.repeats, lambda work, seconds: round(work.words / seconds))
        for name, rate in zip(args.models, rates):
            found[name][phase] = rate
    table(["steps/s", "training", "decoding"], [[ARCHITECTURES[name].title, *found[name].values()] for name in found])
    return found


def training(options: Options, device: torch.device) -> Work:
    """Updates on the longest sequences."""
    trainer = Trainer(options, device)
    trainer.size = options.longest
    steps = trainer.growth.steps(options.longest)
    return Work(
        repeated(trainer.train_update, device.type), trainer.train_update, steps * max(1, options.tokens // steps)
    )


def decoding(options: Options, device: torch.device) -> Work:
    """Decoding of one sequence."""
    trainer = Trainer(options, device)
    inputs = torch.randint(trainer.sequences.symbols, (1, DECODED), device=device)
    decode = partial(trainer.model.eval().decode, inputs)
    return Work(repeated(decode, device.type), decode, DECODED)
