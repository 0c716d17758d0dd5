"""Reinforcement learning with feedback memory.

    python -m fb_fairseq rl train --environment maze_easy --agent feedback --small --out runs/maze_easy
    python -m fb_fairseq rl evaluate --path runs/maze_easy/checkpoint.pt --record episode.gif
    python -m fb_fairseq rl plot --out curves.png Feedback=runs/maze_easy Transformer=runs/other

The default settings are the papers' (v3 §7.2, §7.3); --small selects small ones for a CPU. ``python -m fb_fairseq
benchmark table5 --tasks rl`` measures speed.
"""

import argparse
import json
import os
import sys
from dataclasses import fields, replace
from functools import partial
from typing import Any

from fb_fairseq.command_line import CommandParser, add_overwrite
from fb_fairseq.errors import UserError, flag
from fb_fairseq.files import check_output_file, write_json
from fb_fairseq.papers.rl.options import LONGEST, SIZES, AgentOptions, TrainingOptions, check_range
from fb_fairseq.papers.rl.presets import FULL, preset_options

PRESET = "the preset's"


def add(parser: argparse.ArgumentParser, name: str, text: str, default: Any = None, **more: Any) -> None:
    """Add an option.

    Args:
        parser: the parser to add it to.
        name: of the option.
        text: its help.
        default: its value if it is not given, which says its type and is in its help; None: there is none.
        more: further arguments of ``add_argument``.
    """
    if default is not None:
        text, more["type"] = f"{text} (default: {default})", type(default)
    parser.add_argument(name, help=text, default=default, **more)


def build_parser() -> CommandParser:
    """The parser of ``rl`` and its subcommands."""
    parser = CommandParser("rl", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    train = commands.add_parser("train", help="train an agent, or resume training")
    text = "folder for checkpoint.pt and log.jsonl; training resumes if it contains a checkpoint"
    add(train, "--out", text, required=True)
    add(train, "--agent", "architecture: feedback, transformer or lstm", "feedback")
    add(train, "--environment", "environment: corridor, maze, maze_easy or water_maze", "corridor")
    train.add_argument("--small", action="store_true", help="use the small preset, for a CPU (default: the papers')")
    for name, text in SIZES.items():
        add(train, flag(name), f"{text} (default: {PRESET})", type=int)
    for each in (*fields(AgentOptions), *fields(TrainingOptions)):
        if "help" in each.metadata:
            default = PRESET if each.name in FULL["maze"] else each.default
            text = f"{each.metadata['help']} (default: {default})"
            add(train, flag(each.name), text, type=type(each.default))
    text = f"whether the agent observes its previous action, too (default: {PRESET}; the papers' settings do not)"
    add(train, "--previous-action", text, action=argparse.BooleanOptionalAction)
    add(train, "--log-interval", "number of blocks between log entries", 20)
    text = "number of blocks between checkpoints; one is also written every two minutes, and after Ctrl-C or kill"
    add(train, "--save-interval", text, 200)

    evaluate = commands.add_parser("evaluate", help="measure reward and success of a trained agent")
    add(evaluate, "--path", "checkpoint.pt of a trained agent", required=True, metavar="CHECKPOINT")
    for name, text in SIZES.items():
        add(evaluate, flag(name), f"{text} (default: as in training; all corridors have full length)", type=int)
    add(evaluate, "--episodes", "number of episodes", 500)
    text = "take the most probable action (default: sample from the policy)"
    evaluate.add_argument("--greedy", action="store_true", help=text)
    add(evaluate, "--seed", "seed of the environments and the sampled actions", 0)
    text = "file for a recording of one episode, an animated .gif (default: no recording)"
    add(evaluate, "--record", text, metavar="FILE")
    add(evaluate, "--out", "also write the result, a line of JSON, to this file (default: no file)", metavar="FILE")
    add_overwrite(evaluate)

    plot = commands.add_parser("plot", help="draw learning curves: mean and range over seeds")
    text = "--out folder of train, and its name in the legend; folders of the same name are seeds of one curve"
    add(plot, "runs", text, nargs="+", metavar="NAME=FOLDER")
    add(plot, "--metric", "metric to draw: reward, success, or another in the log", "reward")
    plot.add_argument("--title", default="", help="title of the figure (default: none)")
    add(plot, "--out", "file for the figure", required=True, metavar="PNG")
    add_overwrite(plot)
    for command in (train, evaluate):
        command.add_argument("--cpu", action="store_true", help="run on the CPU (default: a GPU if there is one)")
    return parser


def select_device(args: argparse.Namespace):
    """The device to run on, a ``torch.device``."""
    import torch

    return torch.device("cuda" if torch.cuda.is_available() and not args.cpu else "cpu")


def run_train(args: argparse.Namespace) -> None:
    """Run ``rl train``."""
    from fb_fairseq.papers.rl.trainer import CHECKPOINT_FILE, train

    check_range("log_interval", args.log_interval, 1, LONGEST)
    check_range("save_interval", args.save_interval, 1, LONGEST)
    options, agent = preset_options(args.environment, args.agent, args.small, vars(args))
    say = partial(show_progress, options.frames)
    train(options, agent, args.out, select_device(args), args.log_interval, args.save_interval, say)
    print(os.path.join(args.out, CHECKPOINT_FILE))


def show_progress(frames: int, entry: dict[str, float]) -> None:
    """Print progress, reward and speed to stderr: to one line on a terminal, else one line per entry.

    Args:
        frames: of the whole training.
        entry: of the log.
    """
    share = min(1.0, entry["frames"] / frames)
    bar = f"[{'#' * int(20 * share):20}] {entry['frames']:,} of {frames:,} frames"
    reward = f", reward {entry['reward']:.3f}" if "reward" in entry else ""
    end = "\r" if sys.stderr.isatty() and share < 1 else "\n"
    print(f"{bar}{reward}, {entry['fps']:,.0f} frames/s   ", end=end, file=sys.stderr, flush=True)


def run_evaluate(args: argparse.Namespace) -> None:
    """Run ``rl evaluate``."""
    from fb_fairseq.papers.rl import evaluate as rl

    check_range("episodes", args.episodes, 1)
    check_range("seed", args.seed, 0, LONGEST)
    if args.record:
        if not args.record.endswith(".gif"):
            raise UserError(f"--record {args.record}: give a file name that ends in .gif")
        check_output_file("--record", args.record, rl.NAME, args.overwrite)
    if args.out:
        check_output_file("--out", args.out, rl.NAME, args.overwrite)
    agent, options = rl.load_agent(args.path, select_device(args))
    # Evaluate on corridors of full length, even if the agent has learned from shorter ones too.
    sizes = {name: size for name, size in (options.sizes or {}).items() if name != "shortest"}
    given = {name: value for name in SIZES if (value := getattr(args, name)) is not None}
    options = replace(options, sizes={**sizes, **given})
    result = rl.evaluate(agent, options, args.episodes, args.seed, args.greedy)
    if args.out:
        write_json(args.out, rl.NAME, result)
    if args.record:
        rl.record_episode(args.record, agent, options, args.seed, args.greedy)
    print(
        f"{options.environment}: reward {result['reward']:.3f} per episode, "
        f"success in {result['success']:.1f}% of {result['episodes']} episodes"
    )
    if args.record:
        print(f"Wrote {args.record}")
    print(json.dumps(result))


def run_plot(args: argparse.Namespace) -> None:
    """Run ``rl plot``."""
    from fb_fairseq.drawing import Panel, check_figure, draw_figure
    from fb_fairseq.papers.rl.log import draw_rewards, read_curves

    check_figure("--out", args.out, "rl-plot", args.overwrite)
    draw = partial(draw_rewards, curves=read_curves(args.runs, args.metric), metric=args.metric)
    draw_figure(args.out, [Panel(draw)], args.title, "rl-plot")
    print(f"Wrote {args.out}")


def main(argv: list[str] | None = None) -> None:
    """Run ``python -m fb_fairseq rl``. Exits with an error message on bad input.

    Args:
        argv: the command and its options; the program's own arguments by default.
    """
    parser = build_parser()
    args = parser.parse_args(argv)
    commands = {"train": run_train, "evaluate": run_evaluate, "plot": run_plot}
    with parser.one_line_errors():
        commands[args.command](args)
