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
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from fb_fairseq import pretrained
from fb_fairseq.command_line import CommandParser, add_overwrite, no_log
from fb_fairseq.commands.plot import checkpoints, logs, panels
from fb_fairseq.commands.read_model import read_language_model
from fb_fairseq.drawing.figure import Panel, check_figure, draw_figure, without_math
from fb_fairseq.drawing.models import model_name
from fb_fairseq.errors import UserError, flag

NAME = "plot"
LOGS, CHECKPOINTS, MODELS = "panels from logs", "panels from checkpoints alone", "panels for which models are run"


class Kind(NamedTuple):
    """An option that draws a panel.

    Attributes:
        group: of options, by what they read.
        draw: draws the results of ``measured`` by name; or with ``each``, a single one.
        help: of the option.
        each: whether each path has a panel of its own.
    """

    group: str
    draw: Callable
    help: str
    each: bool = False


KINDS = {
    "curves": Kind(
        LOGS,
        panels.draw_curves,
        "draw learning curves from these logs (of more than four, validation only); a second log with the same name "
        "continues the first one (fine-tuning)",
    ),
    "layer_weights_over_training": Kind(
        LOGS,
        panels.draw_layer_weights_over_training,
        "draw the layers' weights in the feedback memory (Eq. 1) at each validation",
        each=True,
    ),
    "layer_weights": Kind(CHECKPOINTS, panels.draw_layer_weights, "draw the layers' weights in the feedback memory"),
    "spans": Kind(CHECKPOINTS, panels.draw_spans, "draw adaptive spans by layer and head"),
    "attention": Kind(
        MODELS,
        panels.draw_shares,
        "draw the share of attention by layer and distance, mean of all heads",
        each=True,
    ),
    "attention_map": Kind(
        MODELS,
        panels.draw_attention_map,
        "draw the attention between the tokens of a short text",
        each=True,
    ),
    "persistent_shares": Kind(
        MODELS,
        panels.draw_shares,
        "draw the share of attention on persistent vectors by layer and head",
        each=True,
    ),
    "persistent_use": Kind(
        MODELS,
        panels.draw_persistent_use,
        "draw how few persistent vectors take how much of that attention",
        each=True,
    ),
    "context_perplexity": Kind(
        MODELS,
        panels.draw_context_losses,
        "draw perplexity (of byte models, bits per byte) against the context that is available, for the same tokens of "
        "--data",
    ),
    "position_accuracy": Kind(
        MODELS,
        panels.draw_position_accuracy,
        "draw the accuracy of models trained with --labels against the position in a sequence of --data",
    ),
}


def make_panels(args) -> tuple[list[Panel], list[str]]:
    """Read the logs and checkpoints that the options name, and run the models. Returns the panels, and lines of text
    with the numbers of some.
    """
    drawn, told = [], []
    metric = args.metric or ("bpb" if all(logs.read_log(path, "bpb") for _, path in args.curves) else "loss")
    for option, kind in KINDS.items():
        found = {name: measured(args, option, paths, metric) for name, paths in named(args, option).items()}
        if kind.each:
            for name, value in found.items():
                size = panels.map_size(value) if option == "attention_map" else (0, 0)
                wide = option.startswith("attention")
                drawn.append(Panel(partial(kind.draw, found=value), wide, size, title=name))
        elif found:
            settings = {"metric": metric, "x": args.x} if option == "curves" else {}
            drawn.append(Panel(partial(kind.draw, found=found, **settings)))
            if option == "context_perplexity":
                told += panels.context_table(found)
    return drawn, told


def named(args, option: str) -> dict[str, list[str]]:
    """The paths of an option by the names that figures show. Of several, those without a name are called by the path;
    only logs of ``--curves`` may share one.
    """
    found: dict[str, list[str]] = {}
    given = getattr(args, option)
    for name, path in given:
        found.setdefault(name or (without_math(path) if len(given) > 1 else ""), []).append(path)
    if option != "curves" and len(found) < len(given):
        raise UserError(f"{flag(option)}: two have the same name; give each its own")
    return found


def measured(args, option: str, paths: list[str], metric: str) -> Any:
    """Read or measure the value that a panel shows of these paths, which have one name.

    Args:
        args: the options of the command.
        option: the one that names the paths, a key of ``KINDS``.
        paths: one; of curves, one for each stage of the training.
        metric: of curves, its name in logs.
    """
    path = paths[0]
    if option == "curves":
        return [logs.read_curves(path, metric, args.x) for path in paths]
    if option == "layer_weights_over_training":
        return logs.read_layer_weights(path)
    if option == "layer_weights":
        return checkpoints.layer_weights(path)
    if option == "spans":
        return checkpoints.adaptive_spans(path)
    import torch

    from fb_fairseq.commands.evaluate_labels import accuracy_by_position
    from fb_fairseq.commands.plot import measures
    from fb_fairseq.commands.texts import load_data, load_inputs, text_of

    model = read_language_model(path, args.data, args.cpu, flag(option))
    if option == "position_accuracy":
        if args.data is None or not model.labels:
            raise UserError(f"{model.source}: give a model trained with --labels, and its data with --data")
        return accuracy_by_position(model, load_data(model, args.data, args.split), args.tokens)
    if option == "context_perplexity":
        corpus = load_inputs(model, args.data, args.split)
        return measures.losses_by_context(model, corpus, args.tokens, args.context)
    if option == "attention_map":
        return measures.attention_map(model, text_of(model, args.prompt, args.text), args.layer)
    if args.prompt is None and args.text is None:
        span = getattr(model.stack.options, "attention_span", 0)  # an LSTM has none
        streams = measures.cut_text(load_inputs(model, args.data, args.split), args.tokens, span)
    else:  # one stream, whose first step, which attends to nothing, does not count
        streams = torch.tensor([text_of(model, args.prompt, args.text)]), 1
    measure = {
        "attention": measures.mean_attention,
        "persistent_shares": measures.persistent_shares,
        "persistent_use": measures.persistent_use,
    }[option]
    return measure(model, *streams)


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
    return without_math(model_name(name)), path


def build_parser() -> CommandParser:
    """The command's options."""
    parser = CommandParser(NAME, description=__doc__)
    groups = {title: parser.add_argument_group(title) for title in (LOGS, CHECKPOINTS, MODELS)}
    for option, kind in KINDS.items():
        groups[kind.group].add_argument(
            flag(option),
            nargs="+",
            type=named_path,
            default=[],
            metavar="[NAME=]LOG" if kind.group == LOGS else "[NAME=]CHECKPOINT",
            help=f"{kind.help}; one panel each" if kind.each else kind.help,
        )
    curves, models = groups[LOGS], groups[MODELS]
    curves.add_argument("--metric", help="metric of --curves: loss, ppl, … (default: bpb of byte models, else loss)")
    curves.add_argument("--x", choices=logs.X_AXES, default="updates", help="x axis of --curves (default: %(default)s)")
    models.add_argument("--data", help="folder of binarised text to run the models on")
    models.add_argument("--split", default="valid", help="split of --data (default: %(default)s)")
    models.add_argument(
        "--tokens",
        type=int,
        default=20000,
        metavar="N",
        help="how many tokens of --data to measure on, from the beginning (default: %(default)s); --context-perplexity "
        "reads each of them about 20 times",
    )
    text = models.add_mutually_exclusive_group()
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
    models.add_argument("--layer", type=int, metavar="N", help="layer of --attention-map (default: mean of all layers)")
    models.add_argument(
        "--context",
        type=int,
        default=1024,
        metavar="N",
        help="longest context of --context-perplexity in tokens; a power of two, and at most half of the split "
        "(default: %(default)s)",
    )
    models.add_argument("--cpu", action="store_true", help="use the CPU even if there is a GPU")
    figure = parser.add_argument_group("figure")
    figure.add_argument("--title", default="", help="title of the figure")
    figure.add_argument("--out", required=True, metavar="PNG", help="image file to write")
    add_overwrite(figure)
    return parser


def main(argv=None) -> None:
    """Run the command; see ``--help``."""
    parser = build_parser()
    args = parser.parse_args(argv)
    if not any(getattr(args, option) for option in KINDS):
        parser.error(f"give one of {', '.join(map(flag, KINDS))}, or several")
    parser.check_least(args, tokens=1, context=1)
    with parser.one_line_errors(), no_log():
        check_figure("--out", args.out, NAME, args.overwrite)
        drawn, told = make_panels(args)
        draw_figure(args.out, drawn, args.title, NAME)
    print("\n".join([*told, f"Wrote {args.out}"]))
