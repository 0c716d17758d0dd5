"""Reinforcement learning with feedback memory.

    fb-fairseq rl train --environment maze_easy --agent feedback --small --out runs/maze_easy
    fb-fairseq rl evaluate --path runs/maze_easy/checkpoint.pt --record episode.gif
    fb-fairseq rl plot --out curves.png Feedback=runs/maze_easy Transformer=runs/other

The default settings are the papers' (v3 §7.2, §7.3); --small selects small ones for a CPU. ``fb-fairseq
benchmark table5 --tasks rl`` measures speed.
"""

import argparse
import json
import os
from dataclasses import fields, replace
from functools import partial

from fb_fairseq.command_line import CommandParser, add_cpu, add_overwrite
from fb_fairseq.errors import UserError, flag
from fb_fairseq.files import check_output_file, write_json
from fb_fairseq.papers.rl.checks import check_range
from fb_fairseq.papers.rl.options import SIZES, AgentOptions, TrainingOptions
from fb_fairseq.papers.rl.presets import FULL, preset_options

PRESET = "the preset's"
DEFAULT = " (default: %(default)s)"


def build_parser() -> CommandParser:
    """The parser of ``rl`` and its subcommands."""
    parser = CommandParser("rl", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    train = commands.add_parser("train", help="train an agent, or resume training")
    text = "folder for checkpoint.pt and log.jsonl; training resumes if it contains a checkpoint"
    train.add_argument("--out", help=text, required=True)
    train.add_argument("--small", action="store_true", help="use the small preset, for a CPU (default: the papers')")
    for name, text in SIZES.items():
        train.add_argument(flag(name), type=int, help=f"{text} (default: {PRESET})")
    in_presets = {name for preset in FULL.values() for name in preset}
    for each in (*fields(AgentOptions), *fields(TrainingOptions)):
        if "help" in each.metadata:
            own = each.name in ("agent", "environment")
            shown = PRESET if each.name in in_presets else each.default
            text = f"{each.metadata['help']} (default: {shown})"
            train.add_argument(
                flag(each.name), type=type(each.default), default=each.default if own else None, help=text
            )
    text = f"whether the agent observes its previous action, too (default: {PRESET}; the papers' settings do not)"
    train.add_argument("--previous-action", action=argparse.BooleanOptionalAction, help=text)
    text = f"number of blocks between log entries{DEFAULT}"
    train.add_argument("--log-interval", type=int, default=20, help=text)

    evaluate = commands.add_parser("evaluate", help="measure reward and success of a trained agent")
    text = "checkpoint.pt of a trained agent"
    evaluate.add_argument("--path", required=True, metavar="CHECKPOINT", help=text)
    evaluate.add_argument("--episodes", type=int, default=500, help=f"number of episodes{DEFAULT}")
    text = "file for a recording of one episode, an animated .gif (default: no recording)"
    evaluate.add_argument("--record", metavar="FILE", help=text)
    text = "also write the result, a line of JSON, to this file (default: no file)"
    evaluate.add_argument("--out", metavar="FILE", help=text)
    add_overwrite(evaluate)

    plot = commands.add_parser("plot", help="draw the reward over training: mean and range over seeds")
    text = "--out folder of train, and its name in the legend; folders of the same name are seeds of one curve"
    plot.add_argument("runs", nargs="+", metavar="NAME=FOLDER", help=text)
    plot.add_argument("--out", required=True, metavar="PNG", help="file for the figure")
    add_overwrite(plot)
    for command in (train, evaluate):
        add_cpu(command)
    return parser


def select_device(args: argparse.Namespace):
    """The device to run on, a ``torch.device``."""
    import torch

    return torch.device("cuda" if torch.cuda.is_available() and not args.cpu else "cpu")


def run_train(args: argparse.Namespace) -> None:
    """Run ``rl train``."""
    from fb_fairseq.papers.rl.runs import CHECKPOINT_FILE, train

    check_range("log_interval", args.log_interval, 1)
    options, agent = preset_options(args.environment, args.agent, args.small, vars(args))
    train(options, agent, args.out, select_device(args), args.log_interval)
    print(os.path.join(args.out, CHECKPOINT_FILE))


def run_evaluate(args: argparse.Namespace) -> None:
    """Run ``rl evaluate``."""
    from fb_fairseq.papers.rl.evaluate import NAME, evaluate, load_agent, record_episode

    check_range("episodes", args.episodes, 1)
    if args.record:
        check_output_file("--record", args.record, NAME, args.overwrite)
    if args.out:
        check_output_file("--out", args.out, NAME, args.overwrite)
    if args.record and args.out and os.path.realpath(args.record) == os.path.realpath(args.out):
        raise UserError(f"--out {args.out}: the same file as --record; give another one")
    agent, options = load_agent(args.path, select_device(args))
    # Evaluate on corridors of full length, even if the agent has learned from shorter ones too.
    sizes = {name: size for name, size in (options.sizes or {}).items() if name != "shortest"}
    options = replace(options, sizes=sizes)
    if args.record:  # first, as it may lack a package
        record_episode(args.record, agent, options)
    result = evaluate(agent, options, args.episodes)
    if args.out:
        write_json(args.out, NAME, result)
    print(json.dumps(result))


def run_plot(args: argparse.Namespace) -> None:
    """Run ``rl plot``."""
    from fb_fairseq.drawing.figure import Panel, check_figure, draw_figure
    from fb_fairseq.papers.rl.log import draw_rewards, read_curves

    check_figure("--out", args.out, "rl-plot", args.overwrite)
    panel = Panel(partial(draw_rewards, curves=read_curves(args.runs)))
    draw_figure(args.out, [panel], command="rl-plot")
    print(f"Wrote {args.out}")


def main(argv: list[str] | None = None) -> None:
    """Run ``fb-fairseq rl``. Exits with an error message on bad input.

    Args:
        argv: the command and its options; the program's own arguments by default.
    """
    parser = build_parser()
    args = parser.parse_args(argv)
    commands = {"train": run_train, "evaluate": run_evaluate, "plot": run_plot}
    with parser.one_line_errors():
        commands[args.command](args)
