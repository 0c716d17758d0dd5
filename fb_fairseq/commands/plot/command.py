"""Draw learning curves, what models have learned, and what they attend to.

    fb-fairseq plot --curves Feedback=feedback.log LSTM=lstm.log --metric bpb --out curves.png
    fb-fairseq plot --curves A=trained.log A=finetuned.log --out curves.png
    fb-fairseq plot --layer-weights checkpoint_best.pt --spans checkpoint_best.pt --out learned.png
    fb-fairseq plot --layer-weights-over-training train.log --out weights.png
    fb-fairseq plot --attention checkpoint_best.pt --data DATA-BIN --out attention.png
    fb-fairseq plot --attention-map checkpoint_best.pt --prompt "to be or not to be" --out map.png
    fb-fairseq plot --persistent-shares checkpoint_best.pt --data DATA-BIN --out shares.png
    fb-fairseq plot --context-perplexity A=a.pt B=b.pt --data DATA-BIN --out context.png
    fb-fairseq plot --position-accuracy A=a.pt B=b.pt --data LABELLED-BIN --split test --out positions.png

Learning curves are read from what fairseq-train printed or wrote to --log-file (--log-format simple or json); the y
axis of losses ends at their highest value after the first tenth. Layer weights and adaptive spans are read from
checkpoints. For the other panels, language models are run on a text. A name for the legend may precede a path:
Feedback=runs/a/checkpoint_best.pt. Each model has its own colour, which is found by its name. With several of these
options, two panels stand side by side.
"""

import argparse
import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from fb_fairseq import pretrained
from fb_fairseq.command_line import CommandParser, add_cpu, add_overwrite
from fb_fairseq.commands.plot import logs, panels
from fb_fairseq.commands.plot.kinds import CHECKPOINTS, KINDS, LOGS, MODELS
from fb_fairseq.commands.read_model import read_language_model
from fb_fairseq.drawing.figure import Panel, check_figure, draw_figure, plain_text
from fb_fairseq.drawing.models import model_name
from fb_fairseq.errors import UserError, flag
from fb_fairseq.printing import no_log

NAME = "plot"


def make_panels(args) -> tuple[list[Panel], list[str]]:
    """Read the logs and checkpoints that the options name, and run the models. Returns the panels, and lines of text
    with the numbers of some.
    """
    drawn = [panel_of_curves(args)] if args.curves else []
    told: list[str] = []
    for option, kind in KINDS.items():
        given = getattr(args, option)
        names = names_of(given)
        if len(set(names)) < len(names):
            raise UserError(f"{flag(option)}: two have the same name; give each its own")
        found = {name: read(args, option, path) for name, (_, path) in zip(names, given)}
        if kind.each:
            for name, value in found.items():
                size = kind.size(value) if kind.size else (0, 0)
                drawn.append(Panel(partial(kind.draw, found=value), kind.wide, size, title=name))
        elif found:
            drawn.append(Panel(partial(kind.draw, found=found), kind.wide))
            if kind.table:
                told += kind.table(found)
    return drawn, told


def panel_of_curves(args) -> Panel:
    """The panel of ``--curves``. Logs with the same name are stages of one training."""
    metric = args.metric or ("bpb" if all(logs.read_log(path, "bpb") for _, path in args.curves) else "loss")
    stages: dict[str, list[logs.Curves]] = {}
    for name, (_, path) in zip(names_of(args.curves), args.curves):
        stages.setdefault(name, []).append(logs.read_curves(path, metric, args.x))
    return Panel(partial(panels.draw_curves, found=stages, metric=metric, x=args.x))


def names_of(given: Sequence[tuple[str, str]]) -> list[str]:
    """The names that a figure shows. Of several paths, those without a name are called by the path.

    Args:
        given: see ``named_path``.
    """
    return [name or (plain_text(path) if len(given) > 1 else "") for name, path in given]


def read(args, option: str, path: str) -> Any:
    """Read what a panel draws of a path. ``option``: the one that names the path, a key of ``KINDS``."""
    kind = KINDS[option]
    if kind.read:
        return kind.read(path)
    from fb_fairseq.commands.plot.models import READ  # torch is imported only to run a model

    return READ[option](read_language_model(path, args.data, args.cpu, flag(option)), args)


def named_path(argument: str) -> tuple[str, str]:
    """Name, as figures show it, and path of an argument ``[NAME=]PATH``; the name may be empty. A path may contain
    ``=`` too.

    Raises:
        argparse.ArgumentTypeError: the path does not exist.
    """
    name, _, path = ("", "", argument) if os.path.exists(argument) else argument.partition("=")
    path = path or name
    if not os.path.exists(pretrained.find(path)):
        raise argparse.ArgumentTypeError(f"{path}: no such file or folder")
    return plain_text(model_name(name)), path


def build_parser() -> CommandParser:
    """The command's options."""
    parser = CommandParser(NAME, description=__doc__)
    groups = {title: parser.add_argument_group(title) for title in (LOGS, CHECKPOINTS, MODELS)}
    curves = groups[LOGS]
    runs = groups[MODELS]
    curves.add_argument(
        "--curves",
        nargs="+",
        type=named_path,
        default=[],
        metavar="[NAME=]LOG",
        help="draw learning curves from these logs (of more than four, validation only); a second log with the same "
        "name continues the first one (fine-tuning)",
    )
    for option, kind in KINDS.items():
        groups[kind.group].add_argument(
            flag(option),
            nargs="+",
            type=named_path,
            default=[],
            metavar="[NAME=]LOG" if kind.group == LOGS else "[NAME=]CHECKPOINT",
            help=f"{kind.help}; one panel each" if kind.each else kind.help,
        )
    curves.add_argument("--metric", help="metric of --curves: loss, ppl, … (default: bpb of byte models, else loss)")
    curves.add_argument("--x", choices=logs.X_AXES, default="updates", help="x axis of --curves (default: %(default)s)")
    runs.add_argument("--data", help="folder of binarised text to run the models on")
    runs.add_argument("--split", default="valid", help="split of --data (default: %(default)s)")
    runs.add_argument(
        "--tokens",
        type=int,
        default=20000,
        metavar="N",
        help="how many tokens of --data to measure on, from the beginning (default: %(default)s); --context-perplexity "
        "reads each of them about 20 times",
    )
    text = runs.add_mutually_exclusive_group()
    text.add_argument(
        "--text",
        metavar="FILE",
        help="text to run the models on instead of --data, but for --context-perplexity and --position-accuracy",
    )
    text.add_argument(
        "--prompt",
        metavar="TEXT",
        help="such a text itself: bytes with escapes (\\n, \\t, \\\\, \\xHH), or words of the dictionary, separated by "
        "spaces",
    )
    runs.add_argument("--layer", type=int, metavar="N", help="layer of --attention-map (default: mean of all layers)")
    runs.add_argument(
        "--context",
        type=int,
        default=1024,
        metavar="N",
        help="longest context of --context-perplexity in tokens, rounded down to a power of two, and to half of the "
        "split (default: %(default)s)",
    )
    add_cpu(runs)
    figure = parser.add_argument_group("figure")
    figure.add_argument("--title", default="", help="title of the figure")
    figure.add_argument("--out", required=True, metavar="PNG", help="image file to write")
    add_overwrite(figure)
    return parser


def main(argv=None) -> None:
    """Run the command; see ``--help``."""
    parser = build_parser()
    args = parser.parse_args(argv)
    options = ("curves", *KINDS)
    if not any(getattr(args, option) for option in options):
        parser.error(f"give one of {', '.join(map(flag, options))}, or several")
    if args.layer is not None and not args.attention_map:
        parser.error("--layer: is of --attention-map; give both, or leave it out")
    parser.check_least(args, tokens=1, context=1)
    with parser.one_line_errors(), no_log():
        check_figure("--out", args.out, NAME, args.overwrite)
        drawn, told = make_panels(args)
        draw_figure(args.out, drawn, args.title, NAME)
    print("\n".join([*told, f"Wrote {args.out}"]))
