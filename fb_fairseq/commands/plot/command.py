"""Draw learning curves, and what models have learned.

    python -m fb_fairseq plot --curves Feedback=feedback.log LSTM=lstm.log --metric bpb --out curves.png
    python -m fb_fairseq plot --curves A=trained.log A=finetuned.log --out curves.png
    python -m fb_fairseq plot --layer-weights checkpoint_best.pt --spans checkpoint_best.pt --out learned.png
    python -m fb_fairseq plot --persistent-shares checkpoint_best.pt --data DATA-BIN --out shares.png

Learning curves are read from fairseq's logs (--log-format json --log-file FILE, or --tensorboard-logdir DIR), layer
weights and adaptive spans from checkpoints. The share of attention on persistent vectors is measured by running a
checkpoint on a text. A name for the legend may precede a path: Feedback=runs/a/checkpoint_best.pt. With several of
these options, the panels stand side by side.
"""

import argparse
import os
from functools import partial
from typing import Callable, Dict, List, Tuple

from fb_fairseq.command_line import CommandParser
from fb_fairseq.commands.plot.checkpoints import adaptive_spans, layer_weights, persistent_shares
from fb_fairseq.commands.plot.logs import X_AXES, Curve, NamedCurves, continued, read_log
from fb_fairseq.commands.plot.panels import (
    NamedHeads,
    NamedWeights,
    draw_curves,
    draw_layer_weights,
    draw_persistent_shares,
    draw_spans,
)
from fb_fairseq.drawing import check_figure, save_figure
from fb_fairseq.errors import UserError

PANEL_INCHES = (6, 4)  # width and height


def named_path(argument: str) -> Tuple[str, str]:
    """Name and path of an argument ``[NAME=]PATH``; the name may be empty. A path may contain ``=`` too.

    Raises:
        argparse.ArgumentTypeError: the path does not exist.
    """
    name, _, path = ("", "", argument) if os.path.exists(argument) else argument.partition("=")
    path = path or name
    if not os.path.exists(path):
        raise argparse.ArgumentTypeError(f"{path}: no such file or folder")
    return name, path


def build_parser() -> CommandParser:
    """The command's options."""
    parser = CommandParser("plot", description=__doc__)

    def add_paths(option: str, metavar: str, text: str) -> None:
        parser.add_argument(option, nargs="+", type=named_path, default=[], metavar=metavar, help=text)

    add_paths(
        "--curves",
        "[NAME=]LOG",
        "draw learning curves from these logs; a second log with the same name continues the first one (fine-tuning)",
    )
    parser.add_argument(
        "--metric", default="loss", help="metric of --curves: loss, bpb, ppl, accuracy, … (default: %(default)s)"
    )
    parser.add_argument("--x", choices=X_AXES, default=X_AXES[0], help="x axis of --curves (default: %(default)s)")
    add_paths("--layer-weights", "[NAME=]CHECKPOINT", "draw the layers' weights in the feedback memory")
    add_paths("--spans", "[NAME=]CHECKPOINT", "draw adaptive spans by layer and head")
    add_paths(
        "--persistent-shares",
        "[NAME=]CHECKPOINT",
        "draw the share of attention on persistent vectors by layer and head, measured on --data",
    )
    parser.add_argument("--data", help="folder of binarised text, for --persistent-shares")
    parser.add_argument("--split", default="valid", help="split of --data (default: %(default)s)")
    parser.add_argument("--title", default="", help="title of the figure")
    parser.add_argument("--out", required=True, metavar="PNG", help="image file to write")
    return parser


def read_curves(path: str, metric: str, x: str) -> Dict[str, Curve]:
    """The curves of a log, by tag.

    Raises:
        UserError: the metric is not logged, or not its time.
    """
    curves = read_log(path, metric, x)
    if not curves:
        raise UserError(f"--curves {path}: {metric} is not logged there; name another metric with --metric")
    return curves


def read_panels(args) -> List[Callable]:
    """Read the logs and checkpoints that the options name.

    Returns:
        One function for each panel, which draws it on matplotlib axes.

    Raises:
        ValueError: a log or checkpoint lacks what is to be drawn.
    """
    panels: List[Callable] = []
    if args.curves:
        runs = continued([NamedCurves(name, read_curves(path, args.metric, args.x)) for name, path in args.curves])
        panels.append(partial(draw_curves, runs=runs, metric=args.metric, x=args.x))
    if args.layer_weights:
        weights = [NamedWeights(name, layer_weights(path)) for name, path in args.layer_weights]
        panels.append(partial(draw_layer_weights, models=weights))
    if args.spans:
        spans = [NamedHeads(name, adaptive_spans(path)) for name, path in args.spans]
        panels.append(partial(draw_spans, models=spans))
    for name, path in args.persistent_shares:
        shares = NamedHeads(name, persistent_shares(path, args.data, args.split))
        panels.append(partial(draw_persistent_shares, model=shares))
    return panels


def write_figure(panels: List[Callable], title: str, out: str) -> None:
    """Draw the panels side by side and write the figure to ``out``."""
    import matplotlib

    matplotlib.use("Agg")  # no display is needed
    from matplotlib import pyplot

    width, height = PANEL_INCHES
    figure, all_axes = pyplot.subplots(1, len(panels), figsize=(width * len(panels), height), squeeze=False)
    for axes, draw in zip(all_axes[0], panels):
        draw(axes)
    if title:
        figure.suptitle(title)
    save_figure(figure, out)


def main(argv=None) -> None:
    """Run the command; see ``--help``."""
    parser = build_parser()
    args = parser.parse_args(argv)
    if not (args.curves or args.layer_weights or args.spans or args.persistent_shares):
        parser.error("give --curves, --layer-weights, --spans or --persistent-shares, or several of them")
    if args.persistent_shares and not args.data:
        parser.error("--persistent-shares: give the text to measure them on with --data")
    with parser.one_line_errors():
        check_figure("--out", args.out)
        write_figure(read_panels(args), args.title, args.out)
    print(f"Wrote {args.out}")
