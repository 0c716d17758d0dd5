"""Options that several benchmarks have in common."""

import argparse

import torch

from fb_fairseq.errors import UserError
from fb_fairseq.papers.benchmark.models import DTYPES, Case


def add_number(parser: argparse.ArgumentParser, option: str, default: int, text: str) -> None:
    """Add an option with a positive whole number."""
    parser.add_argument(option, type=int, default=default, metavar="N", help=f"{text} (default: %(default)s)")


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of most benchmarks: sizes of the models, number of streams, threads, device and type."""
    add_sizes(parser)
    add_number(parser, "--batch-size", 8, "number of streams")
    add_machine(parser)
    add_dtype(parser)


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """Add the sizes of the models."""
    add_number(parser, "--layers", 4, "number of layers")
    add_number(parser, "--embed-dim", 256, "model width D")
    add_number(parser, "--heads", 4, "number of attention heads")
    add_number(parser, "--ffn-dim", 1024, "units of a feed-forward sublayer")
    add_number(parser, "--span", 100, "attention span S, in steps")


def add_machine(parser: argparse.ArgumentParser) -> None:
    """Add ``--threads`` and ``--device``."""
    add_number(parser, "--threads", 1, "number of CPU threads")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=device, help="cpu or cuda (default here: %(default)s)")


def add_dtype(parser: argparse.ArgumentParser) -> None:
    """Add ``--dtype``."""
    text = "type of parameters and activations (default: %(default)s)"
    parser.add_argument("--dtype", choices=DTYPES, default="fp32", help=text)


def add_block(parser: argparse.ArgumentParser) -> None:
    """Add ``--block``, for benchmarks of training."""
    add_number(parser, "--block", 64, "number of steps in a training block")


def add_only(parser: argparse.ArgumentParser) -> None:
    """Add ``--only``, for benchmarks of the step loops."""
    text = "measure these, and the Transformer, instead of all, such as: triton torch"
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[], help=text)


def only(cases: dict[str, Case], args: argparse.Namespace) -> dict[str, Case]:
    """The cases of ``--only``, and the Transformer, with which they are compared; all without the option."""
    if not args.only:
        return cases
    unknown = [name for name in args.only if name not in cases]
    if unknown:
        known = ", ".join(map(repr, cases))
        raise UserError(f"--only {unknown[0]!r}: not measured on {args.device}; choose from {known}")
    return {name: case for name, case in cases.items() if name in (*args.only, "transformer")}


def add_repeats(parser: argparse.ArgumentParser) -> None:
    """Add ``--repeats``, for benchmarks that report a median time."""
    add_number(parser, "--repeats", 5, "number of timed runs; their median is reported")
