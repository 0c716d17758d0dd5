"""Reinforcement learning with feedback memory.

    python -m fb_fairseq rl train --environment maze_easy --agent feedback --small --out runs/maze_easy
    python -m fb_fairseq rl evaluate --path runs/maze_easy/checkpoint.pt --record episode.gif
    python -m fb_fairseq rl plot --out curves.png Feedback=runs/maze_easy Transformer=runs/other
    python -m fb_fairseq rl speed --environment maze

Without options the papers' settings (v3 §7.2, §7.3), with --small ones for a CPU.
"""

import argparse
import json
import os
import sys
from dataclasses import replace

from fb_fairseq.rl.envs import SIZES


def parser_of_commands() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fb_fairseq rl", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    train = commands.add_parser("train", help="train an agent, or go on with it")
    train.add_argument("--out", required=True, help="folder of checkpoint.pt and log.jsonl; what is there goes on")
    train.add_argument("--agent", default="feedback", help="feedback, transformer or lstm (default: %(default)s)")
    add_setting(train)
    training = [
        ("--frames", int, "steps of all environments together"),
        ("--environments", int, "that run side by side"),
        ("--block", int, "steps of a block (BPTT)"),
        ("--optimizer", str, "adam or rmsprop"),
        ("--lr", float, "learning rate"),
        ("--rmsprop-eps", float, "RMSprop's epsilon"),
        ("--clip-norm", float, "longest gradient"),
        ("--discount", float, "of rewards, a step"),
        ("--entropy-cost", float, "weight of the policy's entropy"),
        ("--value-cost", float, "weight of the value's squared error"),
        ("--seed", int, "of everything"),
    ]
    for name, kind, text in training:
        train.add_argument(name, type=kind, help=text)
    train.add_argument(
        "--log-interval", type=int, default=20, help="blocks between lines of the log (default: %(default)s)"
    )
    train.add_argument(
        "--save-interval", type=int, default=200, help="blocks between checkpoints (default: %(default)s)"
    )
    train.add_argument("--tensorboard-logdir", help="also log there")

    evaluate = commands.add_parser("evaluate", help="episodes of a trained agent")
    evaluate.add_argument("--path", required=True, metavar="CHECKPOINT")
    add_sizes(evaluate)
    evaluate.add_argument("--episodes", type=int, default=500, help="default: %(default)s")
    evaluate.add_argument("--greedy", action="store_true", help="take the most probable action; else one is drawn")
    evaluate.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    evaluate.add_argument("--record", metavar="FILE", help="an episode as .gif, or .png of its steps")
    evaluate.add_argument("--out", metavar="FILE", help="also write the JSON line there")

    plot = commands.add_parser("plot", help="learning curves: mean over seeds, and from the lowest to the highest")
    plot.add_argument("runs", nargs="+", metavar="NAME=FOLDER", help="of train; folders of the same name are its seeds")
    plot.add_argument("--metric", default="reward", help="reward or success (default: %(default)s)")
    plot.add_argument("--title", default="")
    plot.add_argument("--out", required=True, metavar="PNG")

    speed = commands.add_parser("speed", help="frames a second of the agents, and an acting step's time in an episode")
    add_setting(speed)
    speed.add_argument("--environments", type=int, help="that run side by side")
    speed.add_argument("--block", type=int, help="steps of a block (BPTT)")
    speed.add_argument("--blocks", type=int, default=10, help="that are timed (default: %(default)s)")
    for command in (train, evaluate, speed):
        command.add_argument("--cpu", action="store_true", help="even where there is a GPU")
    return parser


def add_sizes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--length", type=int, help="of the corridor")
    parser.add_argument(
        "--shortest", type=int, help="corridors of all lengths from it to --length (default: all of --length)"
    )
    parser.add_argument("--size", type=int, help="of a maze")
    parser.add_argument("--limit", type=int, help="steps of an episode in a maze")


def sizes_of(args) -> dict:
    return {name: getattr(args, name) for name in SIZES if getattr(args, name) is not None}


def add_setting(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--environment", default="corridor", help="corridor, maze, maze_easy or water_maze (default: %(default)s)"
    )
    parser.add_argument("--small", action="store_true", help="a small setting, for a CPU")
    add_sizes(parser)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--width", type=int)
    parser.add_argument("--ffn-width", type=int, help="of the feed-forward sublayers (default: four times the width)")
    parser.add_argument("--heads", type=int)
    parser.add_argument("--span", type=int, help="how many steps back attention reaches")


def setting(args, agent: str):
    from fb_fairseq.rl.presets import preset

    names = (
        "length shortest size limit layers width ffn_width heads span frames environments block optimizer lr rmsprop_eps clip_norm "
        "discount entropy_cost value_cost seed"
    ).split()
    return preset(args.environment, agent, args.small, {name: getattr(args, name, None) for name in names})


def at_least(name: str, value: int, lowest: int) -> None:
    if value < lowest:
        raise ValueError(f"--{name.replace('_', '-')} {value}: give {lowest} or more")


def device_of(args):
    import torch

    return torch.device("cuda" if torch.cuda.is_available() and not args.cpu else "cpu")


def run_train(args) -> None:
    from fb_fairseq.rl.a2c import train

    for name in ("log_interval", "save_interval"):
        at_least(name, getattr(args, name), 1)
    options, agent = setting(args, args.agent)
    loggers = [progress(options.frames)]
    if args.tensorboard_logdir:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ValueError("--tensorboard-logdir: tensorboard is missing; pip install tensorboard") from None
        writer = SummaryWriter(args.tensorboard_logdir)
        loggers.append(
            lambda entry: [
                writer.add_scalar(name, value, entry["frames"]) for name, value in entry.items() if name != "frames"
            ]
        )
    train(options, agent, args.out, device_of(args), args.log_interval, args.save_interval, loggers)
    print(f"{os.path.join(args.out, 'checkpoint.pt')}")


def progress(frames: int):
    """A bar with reward and speed: one line on a terminal, else one for each entry."""

    def show(entry: dict) -> None:
        share = min(1.0, entry["frames"] / frames)
        bar = f"[{'#' * int(20 * share):20}] {entry['frames']:,} of {frames:,} frames"
        reward = f", reward {entry['reward']:.3f}" if "reward" in entry else ""
        end = "\r" if sys.stderr.isatty() and share < 1 else "\n"
        print(f"{bar}{reward}, {entry['fps']:,.0f} frames/s   ", end=end, file=sys.stderr, flush=True)

    return show


def run_evaluate(args) -> None:
    from fb_fairseq.rl.evaluate import evaluate, frames, load_agent, write_images

    at_least("episodes", args.episodes, 1)
    at_least("seed", args.seed, 0)
    if args.record and not args.record.endswith((".gif", ".png")):
        raise ValueError(f"--record {args.record}: give a file name that ends in .gif or .png")
    if not os.path.isfile(args.path):
        raise ValueError(f"--path {args.path}: no such file; give a checkpoint.pt of train")
    agent, options = load_agent(args.path, device_of(args))
    # What is asked for is the corridor's whole length, whatever it was learned from.
    sizes = {name: size for name, size in (options.sizes or {}).items() if name != "shortest"}
    options = replace(options, sizes={**sizes, **sizes_of(args)})
    result = evaluate(agent, options, args.episodes, args.seed, args.greedy)
    print(
        f"{options.environment}: reward {result.reward:.3f} an episode, {result.success:.1f} % with any, of {result.episodes}"
    )
    line = json.dumps(result._asdict())
    if args.out:
        with open(args.out, "w") as file:
            file.write(line + "\n")
    if args.record:
        write_images(frames(agent, options, args.seed, args.greedy), args.record)
        print(f"Wrote {args.record}")
    print(line)


def run_plot(args) -> None:
    from fb_fairseq.rl.plot import draw_curves, read_curves

    draw_curves(read_curves(args.runs, args.metric), args.metric, args.out, args.title)
    print(f"Wrote {args.out}")


def run_speed(args) -> None:
    from fb_fairseq.rl.agent import AGENTS
    from fb_fairseq.rl.speed import measure

    at_least("blocks", args.blocks, 1)
    for agent in AGENTS:
        options, agent_options = setting(args, agent)
        print(json.dumps({"agent": agent, **measure(options, agent_options, args.blocks, device_of(args))}))


def main(argv=None) -> None:
    parser = parser_of_commands()
    args = parser.parse_args(argv)
    try:
        import gymnasium  # noqa: F401
    except ImportError:
        parser.error("gymnasium is missing; pip install gymnasium, or fb_fairseq[rl]")
    commands = {"train": run_train, "evaluate": run_evaluate, "plot": run_plot, "speed": run_speed}
    try:
        commands[args.command](args)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    except ImportError as error:
        parser.error(f"{args.command}: {error.name} is missing; pip install matplotlib pillow, or fb_fairseq[rl]")
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on")


if __name__ == "__main__":
    main()
