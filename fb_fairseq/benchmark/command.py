"""Measure training or decoding. Prints a table, then a line of JSON: the measurements, the options and the hardware."""

import argparse
import json
import re

import torch

from fb_fairseq.benchmark import attention, decode, memory, span, train
from fb_fairseq.benchmark.options import add_model_options
from fb_fairseq.command_line import CommandParser
from fb_fairseq.errors import flag
from fb_fairseq.hardware import hardware

COMMANDS = {"train": train, "attention": attention, "decode": decode, "memory": memory, "span": span}


def parse(argv=None) -> argparse.Namespace:
    """The options. Exits with an error message if they are invalid."""
    parser = CommandParser("benchmark", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, module in COMMANDS.items():
        command = commands.add_parser(name, help=module.__doc__.splitlines()[0], description=module.__doc__)
        add_model_options(command)
        module.add_arguments(command)
    args = parser.parse_args(argv)
    for name, value in vars(args).items():
        if type(value) is int and value < 1:
            parser.error(f"{flag(name)} {value}: give 1 or more")
    if args.embed_dim % args.heads:
        parser.error(f"--heads {args.heads}: does not divide --embed-dim {args.embed_dim}; give a number that does")
    if not re.fullmatch(r"cpu|cuda(:\d+)?", args.device):
        parser.error(f"--device {args.device}: unknown; give cpu or cuda")
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error(f"--device {args.device}: torch finds no GPU; give --device cpu")
    return args


def main(argv=None) -> None:
    """Run ``python -m fb_fairseq benchmark``."""
    args = parse(argv)
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    results = COMMANDS[args.command].run(args)
    setting = {**vars(args), "hardware": hardware(args.device), "torch": torch.__version__}
    print(json.dumps({**results, "setting": setting}))
