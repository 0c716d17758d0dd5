"""Command line of the benchmark: a table, and last one JSON line with what it was measured on."""

import argparse
import json
import platform

import torch

from fb_fairseq.benchmark import attention, decode, memory, span, train
from fb_fairseq.benchmark.measure import DTYPES

COMMANDS = {"train": train, "attention": attention, "decode": decode, "memory": memory, "span": span}


def parse(argv=None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fb_fairseq benchmark", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, module in COMMANDS.items():
        command = commands.add_parser(name, help=module.__doc__.splitlines()[0], description=module.__doc__)
        command.add_argument("--layers", type=int, default=4)
        command.add_argument("--embed-dim", type=int, default=256)
        command.add_argument("--heads", type=int, default=4)
        command.add_argument("--ffn-dim", type=int, default=1024)
        command.add_argument("--span", type=int, default=100, help="attention span: steps back")
        command.add_argument("--batch-size", type=int, default=8, help="streams")
        command.add_argument("--threads", type=int, default=1, help="of a CPU")
        command.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
        command.add_argument("--dtype", choices=DTYPES, default="fp32")
        module.add_arguments(command)
    args = parser.parse_args(argv)
    for name, value in vars(args).items():
        if type(value) is int and value < 1:
            parser.error(f"--{name.replace('_', '-')} {value}: give 1 or more")
    if args.embed_dim % args.heads:
        parser.error(f"--heads {args.heads}: does not divide --embed-dim {args.embed_dim}")
    try:
        torch.device(args.device)
    except RuntimeError:
        parser.error(f"--device {args.device}: unknown; give cpu or cuda")
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error(f"--device {args.device}: torch sees no GPU here; give --device cpu")
    return args


def hardware(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
        return names[0]
    except (OSError, IndexError):
        return platform.processor() or platform.machine()


def main(argv=None) -> None:
    args = parse(argv)
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    results = COMMANDS[args.command].run(args)
    setting = {**vars(args), "hardware": hardware(args.device), "torch": torch.__version__}
    print(json.dumps({**results, "setting": setting}))


if __name__ == "__main__":
    main()
