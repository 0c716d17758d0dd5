"""Draw learning curves, what models have learned, and what they attend to.

    python -m fb_fairseq plot --curves Feedback=feedback.log LSTM=lstm.log --metric bpb --out curves.png
    python -m fb_fairseq plot --curves A=trained.log A=finetuned.log --out curves.png
    python -m fb_fairseq plot --layer-weights checkpoint_best.pt --spans checkpoint_best.pt --out learned.png
    python -m fb_fairseq plot --layer-weights-over-training train.log --out weights.png
    python -m fb_fairseq plot --attention checkpoint_best.pt --data DATA-BIN --out attention.png
    python -m fb_fairseq plot --attention-map checkpoint_best.pt --prompt "to be or not to be" --out map.png
    python -m fb_fairseq plot --passes A=a.pt B=b.pt --prompt "to be or not to be" --out passes.png
    python -m fb_fairseq plot --persistent-shares checkpoint_best.pt --data DATA-BIN --out shares.png
    python -m fb_fairseq plot --context-perplexity A=a.pt B=b.pt --data DATA-BIN --out context.png
    python -m fb_fairseq plot --position-accuracy A=a.pt B=b.pt --data LABELLED-BIN --split test --out positions.png

Learning curves are read from what fairseq-train printed or wrote to --log-file (--log-format simple or json), or from
--tensorboard-logdir; the y axis of losses ends at their highest value after the first tenth. Layer weights and adaptive
spans are read from checkpoints. For the other panels, language models are run on a text. A name for the legend may
precede a path: Feedback=runs/a/checkpoint_best.pt. Each model has its own colour, which is found by its name. With
several of these options, two panels stand side by side.
"""

import argparse
import itertools
import os
from collections.abc import Iterator
from functools import partial

from fb_fairseq import pretrained
from fb_fairseq.command_line import CommandParser, add_overwrite
from fb_fairseq.commands import checkpoint_of
from fb_fairseq.commands.generate import no_log
from fb_fairseq.commands.plot import files, measures, panels
from fb_fairseq.commands.plot.models import LoadedModel, check_split, load_corpus, load_model, text_of, token_labels
from fb_fairseq.commands.plot.panels import Named
from fb_fairseq.drawing import Panel, check_figure, draw_figure, without_math
from fb_fairseq.errors import UserError, flag

NAME = "plot"
PANELS = (
    "curves",
    "layer_weights",
    "layer_weights_over_training",
    "spans",
    "attention",
    "attention_map",
    "passes",
    "persistent_shares",
    "persistent_use",
    "context_perplexity",
    "position_accuracy",
)


def make_panels(args) -> list[Panel]:
    """Read the logs and checkpoints that the options name, and run the models."""
    if args.data is not None and measured_on_data(args):
        check_split(args.data, args.split)
    return [*panels_of_files(args), *panels_of_models(args)]


def measured_on_data(args) -> list[str]:
    """The options among those given whose measures need ``--data``."""
    names = ["persistent_shares", "persistent_use", "context_perplexity", "position_accuracy"]
    if not has_text(args):
        names[:0] = ["attention", "passes"]
    return [flag(name) for name in names if getattr(args, name)]


def has_text(args) -> bool:
    """Whether a text is given, as a file or literally."""
    return args.text is not None or args.prompt is not None


def panels_of_files(args) -> Iterator[Panel]:
    """The panels for which it is enough to read logs and checkpoints."""
    if args.curves:
        metric = args.metric or ("bpb" if all(files.read_log(path, "bpb") for _, path in args.curves) else "loss")
        runs = files.continued(
            [files.NamedCurves(name, read_curves(path, metric, args.x)) for name, path in args.curves]
        )
        yield Panel(partial(panels.draw_curves, runs=runs, metric=metric, x=args.x))
    if args.layer_weights:
        weights = [Named(name, files.layer_weights(path)) for name, path in args.layer_weights]
        yield Panel(partial(panels.draw_layer_weights, models=weights))
    for name, path in args.layer_weights_over_training:
        run = Named(name, read_weight_curves(path))
        yield Panel(partial(panels.draw_layer_weights_over_training, run=run))
    if args.spans:
        spans = [Named(name, files.adaptive_spans(path)) for name, path in args.spans]
        yield Panel(partial(panels.draw_spans, models=spans))


def read_curves(path: str, metric: str, x: str) -> dict[str, files.Curve]:
    """The curves of a log, by tag."""
    curves = files.read_log(path, metric, x)
    if not curves and os.path.isfile(path) and not files.read_log(path, files.UPDATES):
        raise UserError(f"--curves {path}: has no line of a training; give what fairseq-train printed (no tqdm bar)")
    if not curves:
        raise UserError(f"--curves {path}: {metric} is not logged there; name another metric with --metric")
    return curves


def read_weight_curves(path: str) -> list[files.Curve]:
    """The curves of Eq. 1's weights in a log, by layer."""
    layers = files.read_layer_weights(path)
    if not layers:
        raise UserError(
            f"--layer-weights-over-training {path}: no layer weights are logged there; give the log of a run with "
            "--memory-composition weighted, --criterion lm_loss and validation"
        )
    return layers


def panels_of_models(args) -> Iterator[Panel]:
    """The panels for which models are run."""

    def load(option: str, path: str) -> LoadedModel:
        return load_model(option, path, args.data, args.cpu)

    def cut_data(loaded: LoadedModel):
        span = getattr(loaded.stack.options, "attention_span", 0)  # an LSTM has none
        return measures.cut_text(load_corpus(loaded, args.data, args.split), args.tokens, span)

    for name, path in args.attention:
        loaded = load("--attention", path)
        streams = one_stream(text_of(args, loaded)) if has_text(args) else cut_data(loaded)
        found = Named(name, measures.mean_attention(loaded, *streams))
        yield Panel(partial(panels.draw_attention, model=found), wide=True)
    for name, path in args.attention_map:
        loaded = load("--attention-map", path)
        tokens = text_of(args, loaded)
        found = Named(name, measures.attention_map(loaded, tokens, args.layer))
        side, labels = panels.map_inches(len(tokens)), token_labels(tokens, loaded.dictionary)
        draw = partial(panels.draw_attention_map, model=found, labels=labels)
        yield Panel(draw, wide=True, size=(side + 1, side))
    for name, path in args.persistent_shares:
        loaded = load("--persistent-shares", path)
        shares = Named(name, measures.persistent_shares(loaded, *cut_data(loaded)))
        yield Panel(partial(panels.draw_persistent_shares, model=shares))
    for name, path in args.persistent_use:
        loaded = load("--persistent-use", path)
        use = Named(name, measures.persistent_use(loaded, *cut_data(loaded)))
        yield Panel(partial(panels.draw_persistent_use, model=use))
    if args.passes:
        errors = []
        for name, path in args.passes:
            loaded = load("--passes", path)
            tokens_BT = one_stream(text_of(args, loaded))[0] if has_text(args) else cut_data(loaded)[0]
            errors.append(Named(name, measures.errors_by_pass(loaded, tokens_BT)))
        yield Panel(partial(panels.draw_passes, models=errors), values=panels.pass_values(errors))
    if args.context_perplexity:
        losses = []
        for name, path in args.context_perplexity:
            loaded = load("--context-perplexity", path)
            if loaded.has_labels:
                raise UserError(f"{loaded.source}: was trained with --labels; use --position-accuracy")
            corpus = load_corpus(loaded, args.data, args.split)
            longest = measures.longest_context(args.context, len(corpus))
            losses.append(Named(name, measures.losses_by_context(loaded, corpus, args.tokens, longest)))
        yield Panel(partial(panels.draw_context_losses, models=losses), values=panels.context_table(losses))
    if args.position_accuracy:
        accuracies = [
            Named(name, measures.accuracy_by_position(load("--position-accuracy", path), args.split, args.tokens))
            for name, path in args.position_accuracy
        ]
        yield Panel(partial(panels.draw_position_accuracy, models=accuracies))


def one_stream(tokens: list[int]):
    """A text as one stream [1, T], whose first step, which attends to nothing, does not count."""
    import torch

    return torch.tensor([tokens]), 1


def named_path(argument: str) -> tuple[str, str]:
    """Name, as figures show it, and path of an argument ``[NAME=]PATH``; the name may be empty. A path may contain
    ``=`` too.

    Raises:
        argparse.ArgumentTypeError: the path does not exist."""
    name, _, path = ("", "", argument) if os.path.exists(argument) else argument.partition("=")
    path = path or name
    if not os.path.exists(pretrained.find(path)):
        raise argparse.ArgumentTypeError(f"{path}: no such file or folder")
    return without_math(name), path


def build_parser() -> CommandParser:
    """The command's options."""
    parser = CommandParser(NAME, description=__doc__)

    def add_paths(group, option: str, metavar: str, text: str) -> None:
        group.add_argument(option, nargs="+", type=named_path, default=[], metavar=metavar, help=text)

    logs = parser.add_argument_group("panels from logs")
    add_paths(
        logs,
        "--curves",
        "[NAME=]LOG",
        "draw learning curves from these logs (of more than four, validation only); a second log with the same name "
        "continues the first one (fine-tuning)",
    )
    logs.add_argument("--metric", help="metric of --curves: loss, ppl, … (default: bpb of byte models, else loss)")
    logs.add_argument(
        "--x", choices=files.X_AXES, default=files.X_AXES[0], help="x axis of --curves (default: %(default)s)"
    )
    add_paths(
        logs,
        "--layer-weights-over-training",
        "[NAME=]LOG",
        "draw the layers' weights in the feedback memory (Eq. 1) at each validation, one panel for each log",
    )
    saved = parser.add_argument_group("panels from checkpoints alone")
    add_paths(saved, "--layer-weights", "[NAME=]CHECKPOINT", "draw the layers' weights in the feedback memory")
    add_paths(saved, "--spans", "[NAME=]CHECKPOINT", "draw adaptive spans by layer and head")
    models = parser.add_argument_group("panels for which models are run")
    for option, text in (
        (
            "--attention",
            "draw the share of attention by layer and distance, mean of all heads, on --data or a text; one panel each",
        ),
        ("--attention-map", "draw the attention between the tokens of a short text; one panel each"),
        (
            "--passes",
            "draw the error of a feedback memory that is computed for all steps at once, in passes (--step-loop "
            "parallel), on --data or a text",
        ),
        ("--persistent-shares", "draw the share of attention on persistent vectors by layer and head; one panel each"),
        ("--persistent-use", "draw how few persistent vectors take how much of that attention; one panel each"),
        (
            "--context-perplexity",
            "draw perplexity (of byte models, bits per byte) against the context that is available, for the same "
            "tokens of --data",
        ),
        ("--position-accuracy", "draw the accuracy of models trained with --labels against the position in a sequence"),
    ):
        add_paths(models, option, "[NAME=]CHECKPOINT", text)
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
    text.add_argument("--text", metavar="FILE", help="text for --attention, --attention-map and --passes")
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
        metavar="N",
        help="longest context of --context-perplexity in tokens, a power of two (default: "
        f"{measures.LONGEST}, or at most half of the split)",
    )
    models.add_argument("--cpu", action="store_true", help="use the CPU even if there is a GPU")
    figure = parser.add_argument_group("figure")
    figure.add_argument("--title", default="", help="title of the figure")
    figure.add_argument("--out", required=True, metavar="PNG", help="image file to write")
    add_overwrite(figure)
    return parser


def name_all(args) -> None:
    """Of several paths of an option, those without a name are called by the path."""
    for option in PANELS:
        paths = getattr(args, option)
        if len(paths) > 1:
            paths = [(name or without_math(path), path) for name, path in paths]
        is_log = option in ("curves", "layer_weights_over_training")
        setattr(args, option, [(name, path if is_log else checkpoint_of(path)) for name, path in paths])


def check(parser: CommandParser, args) -> None:
    """Exit with one line if the options do not go together."""
    if not any(getattr(args, name) for name in PANELS):
        names = [flag(name) for name in PANELS]
        parser.error(f"give {', '.join(names[:-1])} or {names[-1]}, or several of them")
    if args.tokens < 1:
        parser.error(f"--tokens {args.tokens}: must be 1 or more")
    if args.data is None and measured_on_data(args):
        option = measured_on_data(args)[0]
        text = ", or a text with --text or --prompt" if option in ("--attention", "--passes") else ""
        parser.error(f"{option}: give the folder of binarised text to measure on with --data{text}")
    if args.attention_map and not has_text(args):
        parser.error("--attention-map: give a short text with --prompt, or a file with --text")
    for name, users in (
        ("text", ("attention", "attention_map", "passes")),
        ("prompt", ("attention", "attention_map", "passes")),
        ("layer", ("attention_map",)),
        ("context", ("context_perplexity",)),
    ):
        if getattr(args, name) is not None and not any(getattr(args, user) for user in users):
            parser.error(f"{flag(name)}: has no effect without {' or '.join(map(flag, users))}; leave it out")


def main(argv=None) -> None:
    """Run the command; see ``--help``."""
    parser = build_parser()
    args = parser.parse_args(argv)
    check(parser, args)
    with parser.one_line_errors(), no_log():
        name_all(args)
        check_figure("--out", args.out, NAME, args.overwrite)
        drawn = make_panels(args)
        draw_figure(args.out, drawn, args.title, NAME)
    for line in itertools.chain.from_iterable(panel.values for panel in drawn):
        print(line)
    print(f"Wrote {args.out}")
