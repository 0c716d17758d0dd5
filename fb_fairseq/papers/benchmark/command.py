"""Measure training or decoding. Prints a table, then a line of JSON: the measurements, the options and the hardware."""

import argparse
import importlib
import json
import re
from types import ModuleType

import torch

from fb_fairseq.command_line import CommandParser
from fb_fairseq.errors import flag
from fb_fairseq.hardware import MOST_THREADS, hardware
from fb_fairseq.papers.benchmark import bptt, decode, memory, span, train
from fb_fairseq.papers.benchmark.models import add_dtype, add_machine, add_model_options, add_sizes

COMMANDS = {"train": train, "decode": decode, "memory": memory, "span": span, "bptt": bptt}
TABLE5 = "fb_fairseq.papers.table5.command"  # imported when the command runs, as it is no part of this folder
# The options of ``options.py`` that a command has, where these are not all.
COMMON_OPTIONS = {"bptt": (add_sizes, add_machine, add_dtype), "table5": (add_machine,)}


def all_commands() -> dict[str, ModuleType]:
    """The modules of all commands by name."""
    return {**COMMANDS, "table5": importlib.import_module(TABLE5)}


def parse(argv=None) -> argparse.Namespace:
    """The options. Exits with an error message if they are invalid."""
    parser = CommandParser("benchmark", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, module in all_commands().items():
        command = commands.add_parser(name, help=module.__doc__.splitlines()[0], description=module.__doc__)
        for add in COMMON_OPTIONS.get(name, (add_model_options,)):
            add(command)
        module.add_arguments(command)
    args = parser.parse_args(argv)
    for name, value in vars(args).items():
        for number in value if isinstance(value, list) else [value]:
            if type(number) is int and number < 1:
                parser.error(f"{flag(name)} {number}: give 1 or more")
    if "heads" in args and args.embed_dim % args.heads:
        parser.error(f"--heads {args.heads}: does not divide --embed-dim {args.embed_dim}; give a number that does")
    if args.threads > MOST_THREADS:
        parser.error(f"--threads {args.threads}: give {MOST_THREADS} or less")
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
    with CommandParser("benchmark").one_line_errors():
        results = all_commands()[args.command].run(args)
    setting = {**vars(args), "hardware": hardware(args.device), "torch": torch.__version__}
    print(json.dumps({**results, "setting": setting}))
