"""Measure training or decoding. Prints a table, then a line of JSON: the measurements, the options and the hardware."""

import argparse
import json

import torch

from fb_fairseq.command_line import CommandParser
from fb_fairseq.hardware import hardware
from fb_fairseq.papers.benchmark import decode, table5, tracking, train
from fb_fairseq.papers.benchmark.options import add_number

COMMANDS = {"train": train, "decode": decode, "table5": table5, "tracking": tracking}
MOST_THREADS = 1024


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """The options. Exits with an error message if they are invalid.

    Args:
        argv: the command and its options; the program's own arguments by default.
    """
    parser = CommandParser("benchmark", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, module in COMMANDS.items():
        command = commands.add_parser(name, help=module.__doc__.splitlines()[0], description=module.__doc__)
        module.add_arguments(command)
        if module is not decode:  # decode always times ten parts of one stream
            add_number(command, "--repeats", 5, "number of timed runs; their median is reported")
        add_number(command, "--threads", 1, "number of CPU threads")
        devices = ("cuda", "cpu") if torch.cuda.is_available() else ("cpu",)
        text = "cpu or, if there is one, cuda (default here: %(default)s)"
        command.add_argument("--device", choices=devices, default=devices[0], help=text)
    args = parser.parse_args(argv)
    if args.threads > MOST_THREADS:
        parser.error(f"--threads {args.threads}: give {MOST_THREADS} or less")
    return args


def main(argv: list[str] | None = None) -> None:
    """Run ``fb-fairseq benchmark``.

    Args:
        argv: as of ``parse``.
    """
    args = parse(argv)
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    with CommandParser("benchmark").one_line_errors():
        results = COMMANDS[args.command].run(args)
    setting = {**vars(args), "hardware": hardware(args.device), "torch": torch.__version__}
    print(json.dumps({"results": results, "setting": setting}))
