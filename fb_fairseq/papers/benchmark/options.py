"""Options that several benchmarks have in common, such as the models' sizes."""

import argparse

import torch

from fb_fairseq.command_line import whole_number

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def add_number(parser: argparse.ArgumentParser, option: str, default: int, text: str) -> None:
    """Add an option with a positive whole number. ``text``: its help, without the default."""
    parser.add_argument(option, type=whole_number, default=default, metavar="N", help=f"{text} (default: %(default)s)")


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of train and decode: sizes of the models, number of streams, type, and what to measure."""
    add_number(parser, "--layers", 4, "number of layers")
    add_number(parser, "--embed-dim", 256, "model width D")
    add_number(parser, "--heads", 4, "number of attention heads")
    add_number(parser, "--ffn-dim", 1024, "units of a feed-forward sublayer")
    add_number(parser, "--span", 100, "attention span S, in steps")
    add_number(parser, "--batch-size", 8, "number of streams")
    text = "type of parameters and activations (default: %(default)s)"
    parser.add_argument("--dtype", choices=DTYPES, default="fp32", help=text)
    text = "measure these, and the Transformer, instead of all; a name that is unknown is answered with all names"
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[], help=text)
