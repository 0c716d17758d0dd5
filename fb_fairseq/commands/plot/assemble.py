"""Do what the options of ``python -m fb_fairseq plot`` ask for: read logs and checkpoints, run models, make panels."""

import os
from collections.abc import Iterator
from functools import partial

from fb_fairseq.commands.plot import attention, heat_maps, panels, passes
from fb_fairseq.commands.plot.checkpoints import adaptive_spans, layer_weights
from fb_fairseq.commands.plot.context import longest_context, losses_by_context
from fb_fairseq.commands.plot.logs import UPDATES, Curve, NamedCurves, continued, read_layer_weights, read_log
from fb_fairseq.commands.plot.models import LoadedModel, check_split, load_corpus, load_model, text_of, token_labels
from fb_fairseq.commands.plot.positions import accuracy_by_position
from fb_fairseq.drawing import Panel
from fb_fairseq.errors import UserError, flag


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
        metric = args.metric or ("bpb" if all(read_log(path, "bpb") for _, path in args.curves) else "loss")
        runs = continued([NamedCurves(name, read_curves(path, metric, args.x)) for name, path in args.curves])
        yield Panel(partial(panels.draw_curves, runs=runs, metric=metric, x=args.x))
    if args.layer_weights:
        weights = [panels.NamedWeights(name, layer_weights(path)) for name, path in args.layer_weights]
        yield Panel(partial(panels.draw_layer_weights, models=weights))
    for name, path in args.layer_weights_over_training:
        run = panels.NamedLayerCurves(name, read_weight_curves(path))
        yield Panel(partial(panels.draw_layer_weights_over_training, run=run))
    if args.spans:
        spans = [panels.NamedHeads(name, adaptive_spans(path)) for name, path in args.spans]
        yield Panel(partial(panels.draw_spans, models=spans))


def read_curves(path: str, metric: str, x: str) -> dict[str, Curve]:
    """The curves of a log, by tag."""
    curves = read_log(path, metric, x)
    if not curves and os.path.isfile(path) and not read_log(path, UPDATES):
        raise UserError(
            f"--curves {path}: has no line of a training; give what fairseq-train printed (not the bar of tqdm)"
        )
    if not curves:
        raise UserError(f"--curves {path}: {metric} is not logged there; name another metric with --metric")
    return curves


def read_weight_curves(path: str) -> list[Curve]:
    """The curves of Eq. 1's weights in a log, by layer."""
    layers = read_layer_weights(path)
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
        return attention.cut_text(load_corpus(loaded, args.data, args.split), args.tokens, span)

    for name, path in args.attention:
        loaded = load("--attention", path)
        streams = one_stream(text_of(args, loaded)) if has_text(args) else cut_data(loaded)
        found = heat_maps.NamedAttention(name, attention.mean_attention(loaded, *streams))
        yield Panel(partial(heat_maps.draw_attention, model=found), wide=True)
    for name, path in args.attention_map:
        loaded = load("--attention-map", path)
        tokens = text_of(args, loaded)
        found_map = attention.attention_map(loaded, tokens, args.layer)
        named_map = heat_maps.NamedMap(name, found_map, token_labels(tokens, loaded.dictionary))
        side = heat_maps.map_inches(len(tokens))
        yield Panel(partial(heat_maps.draw_attention_map, model=named_map), wide=True, size=(side + 1, side))
    for name, path in args.persistent_shares:
        loaded = load("--persistent-shares", path)
        shares = panels.NamedHeads(name, attention.persistent_shares(loaded, *cut_data(loaded)))
        yield Panel(partial(heat_maps.draw_persistent_shares, model=shares))
    for name, path in args.persistent_use:
        loaded = load("--persistent-use", path)
        use = panels.NamedHeads(name, attention.persistent_use(loaded, *cut_data(loaded)))
        yield Panel(partial(panels.draw_persistent_use, model=use))
    if args.passes:
        errors = []
        for name, path in args.passes:
            loaded = load("--passes", path)
            tokens_BT = one_stream(text_of(args, loaded))[0] if has_text(args) else cut_data(loaded)[0]
            errors.append(passes.errors_by_pass(name, loaded, tokens_BT))
        yield Panel(partial(passes.draw_passes, models=errors), values=passes.values(errors))
    if args.context_perplexity:
        losses = []
        for name, path in args.context_perplexity:
            loaded = load("--context-perplexity", path)
            if loaded.has_labels:
                raise UserError(f"{loaded.source}: was trained with --labels; use --position-accuracy")
            corpus = load_corpus(loaded, args.data, args.split)
            longest = longest_context(args.context, len(corpus))
            losses.append(panels.NamedLosses(name, losses_by_context(loaded, corpus, args.tokens, longest)))
        yield Panel(partial(panels.draw_context_losses, models=losses), values=panels.context_table(losses))
    if args.position_accuracy:
        accuracies = [
            panels.NamedPositions(
                name, accuracy_by_position(load("--position-accuracy", path), args.split, args.tokens)
            )
            for name, path in args.position_accuracy
        ]
        yield Panel(partial(panels.draw_position_accuracy, models=accuracies))


def one_stream(tokens: list[int]):
    """A text as one stream [1, T], whose first step, which attends to nothing, does not count."""
    import torch

    return torch.tensor([tokens]), 1
