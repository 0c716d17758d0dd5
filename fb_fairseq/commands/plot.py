"""``python -m fb_fairseq plot``: draw what was logged and learned.

Curves come from fairseq's logs (``--log-format json --log-file FILE``, or ``--tensorboard-logdir DIR``), layer weights
and adaptive spans from checkpoints, the share of attention that persistent vectors take from checkpoints and a text
(``--data data-bin``). A name may stand before a path: ``Feedback=runs/a/checkpoint_best.pt``.
"""

import argparse
import json
import os
from statistics import mean
from typing import Dict, List, Tuple

Curve = List[Tuple[float, float]]


def read_log(path: str, metric: str) -> Dict[str, Curve]:
    """The curves of one metric by tag (``train_inner``, ``valid``, …) as (update, value)."""
    return read_tensorboard(path, metric) if os.path.isdir(path) else read_json_log(path, metric)


def read_json_log(path: str, metric: str) -> Dict[str, Curve]:
    """From a log of ``--log-format json``, a file of ``--log-file`` or the terminal's.

    fairseq prefixes the values of an epoch or a validation with the tag, those within an epoch with nothing.
    """
    curves: Dict[str, Curve] = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            try:
                values = json.loads(line[line.index("{") :])
            except ValueError:
                continue  # no values here; the configuration is logged as a Python dict
            for key in values:
                if key.endswith("num_updates"):
                    prefix = key[: -len("num_updates")]
                    if prefix + metric in values:
                        point = float(values[key]), float(values[prefix + metric])
                        curves.setdefault(prefix[:-1] or "train_inner", []).append(point)
    return curves


def read_tensorboard(folder: str, metric: str) -> Dict[str, Curve]:
    """From a folder of ``--tensorboard-logdir``, which has one folder a tag."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    curves = {}
    for tag in sorted(os.listdir(folder)):
        events = EventAccumulator(os.path.join(folder, tag)).Reload()
        if metric in events.Tags()["scalars"]:
            curves[tag] = [(event.step, event.value) for event in events.Scalars(metric)]
    return curves


def load(checkpoint: str) -> dict:
    import torch

    from fb_fairseq import patches  # noqa: F401  before fairseq is used

    return torch.load(checkpoint, map_location="cpu")


def spans(checkpoint: str) -> List[List[float]]:
    """How many steps back each head of each layer reaches, ramp included."""
    saved = load(checkpoint)
    model, cfg = saved["model"], saved["cfg"]["model"]
    cfg = vars(cfg) if not isinstance(cfg, dict) else cfg
    ratios = []
    while f"decoder.layers.{len(ratios)}.self_attn.adaptive_span.z" in model:
        ratios.append(model[f"decoder.layers.{len(ratios)}.self_attn.adaptive_span.z"].float())
    if not ratios:
        raise ValueError(f"--spans {checkpoint}: its spans are fixed; give a checkpoint of --adaptive-span")
    S, ramp = cfg["attention_span"], cfg["adaptive_span_ramp"]
    return [(z * S + ramp).clamp(max=S).tolist() for z in ratios]


def layer_weights(checkpoint: str) -> List[float]:
    """What the memory takes of the embedding and of each layer, softmax(w) of Eq. 1."""
    import torch

    logits = load(checkpoint)["model"].get("decoder.memory.layer_weights")
    if logits is None or logits.dim() != 1:
        raise ValueError(
            f"--layer-weights {checkpoint}: its memory has no learned weights; give a checkpoint of "
            "--memory-composition weighted"
        )
    return torch.softmax(logits.float(), 0).tolist()


def persistent_shares(checkpoint: str, data: str, split: str, tokens: int = 4096, block: int = 64) -> List[List[float]]:
    """The share of attention on persistent vectors, by layer and head; mean over a split's first tokens, one stream."""
    import torch
    from fairseq import checkpoint_utils
    from fairseq.data import data_utils

    import fb_fairseq.models  # noqa: F401  --user-dir does this in fairseq's commands
    import fb_fairseq.tasks  # noqa: F401
    from fb_fairseq.streams.layout import Corpus

    if not os.path.exists(os.path.join(data, f"{split}.idx")):
        raise ValueError(f"--data {data}: no binarised {split} split lies there; give another, or --split")
    saved_model = load(checkpoint)["model"]
    if not any(".persistent_memory." in name for name in saved_model):
        raise ValueError(
            f"--persistent-shares {checkpoint}: it has no persistent vectors; give one of all_attention_lm"
        )
    models, _, task = checkpoint_utils.load_model_ensemble_and_task([checkpoint], arg_overrides={"data": data})
    decoder = models[0].eval().decoder
    dataset = data_utils.load_indexed_dataset(os.path.join(data, split), task.source_dictionary)
    corpus = Corpus(dataset, task.source_dictionary.eos())
    total, state, tokens = 0.0, None, min(tokens, len(corpus))
    with torch.no_grad():
        for start in range(0, tokens, block):
            x_TBD = decoder.embed(corpus[start : min(start + block, tokens)][None], start).transpose(0, 1)
            shares_LH, state = decoder.persistent_shares(x_TBD, state)
            total = total + shares_LH * len(x_TBD)
    return (total / tokens).tolist()


def draw_band(axes, xs: List[float], values: List[List[float]], label: str, color: str) -> None:
    """The mean at each x, and the range from the lowest to the highest."""
    axes.plot(xs, list(map(mean, values)), label=label, color=color)
    axes.fill_between(xs, list(map(min, values)), list(map(max, values)), color=color, alpha=0.2, linewidth=0)


def mean_and_range(values: List[List[float]]) -> Tuple[List[float], List[List[float]]]:
    """Means, and how far the lowest lie below and the highest above them: the ``yerr`` of error bars."""
    means = list(map(mean, values))
    return means, [[m - min(v) for m, v in zip(means, values)], [max(v) - m for m, v in zip(means, values)]]


def draw_curves(axes, logs: List[Tuple[str, str]], metric: str) -> None:
    names = {"bpb": "bits per byte", "loss": "bits per token", "ppl": "perplexity", "accuracy": "accuracy (%)"}
    for i, (name, path) in enumerate(logs):
        curves = read_log(path, metric)
        if not curves:
            raise ValueError(f"--curves {path}: no {metric} is logged there; name another with --metric")
        for tag, curve in curves.items():
            if tag == "train" and len(curves) > 1:
                continue  # the averages of whole epochs say little beside train_inner
            training = tag.startswith("train")
            style = {"alpha": 0.4, "linewidth": 1} if training else {"marker": "o", "markersize": 4}
            label = " ".join(filter(None, [name, "training" if training else tag]))
            axes.plot(*zip(*sorted(curve)), label=label, color=f"C{i % 10}", **style)
    axes.set_xlabel("updates")
    axes.set_ylabel(names.get(metric, metric))
    if metric.endswith("ppl"):
        axes.set_yscale("log")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


def draw_layer_weights(axes, checkpoints: List[Tuple[str, str]]) -> None:
    width = 0.8 / len(checkpoints)
    for i, (name, path) in enumerate(checkpoints):
        weights = layer_weights(path)
        axes.bar(
            [l + (i - (len(checkpoints) - 1) / 2) * width for l in range(len(weights))], weights, width, label=name
        )
    axes.set_xticks(range(len(weights)))
    axes.set_xticklabels(["embedding"] + [f"layer {l}" for l in range(1, len(weights))])
    axes.axhline(1 / len(weights), color="grey", linestyle=":", label="equal shares (the start)")
    axes.set_ylabel("share of the memory")
    axes.legend()


def draw_spans(axes, checkpoints: List[Tuple[str, str]]) -> None:
    for i, (name, path) in enumerate(checkpoints):
        layers = spans(path)
        offset = (i - (len(checkpoints) - 1) / 2) * 0.2
        points = [(l + 1 + offset, span) for l, heads in enumerate(layers) for span in heads]
        axes.scatter(*zip(*points), alpha=0.7, label=name or None, color=f"C{i % 10}")
    axes.set_xticks(range(1, len(layers) + 1))
    axes.set_xlabel("layer")
    axes.set_ylabel("span of each head (steps)")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    if any(name for name, _ in checkpoints):
        axes.legend(fontsize="small")


def draw_persistent_shares(axes, name: str, layers: List[List[float]]) -> None:
    image = axes.imshow(layers, vmin=0, vmax=1, aspect="auto", origin="lower", cmap="viridis")
    axes.set_xlabel("head")
    axes.set_ylabel("layer")
    axes.set_xticks(range(len(layers[0])))
    axes.set_xticklabels(range(1, len(layers[0]) + 1))
    axes.set_yticks(range(len(layers)))
    axes.set_yticklabels(range(1, len(layers) + 1))
    if name:
        axes.set_title(name)
    axes.figure.colorbar(image, ax=axes, label="share of attention on persistent vectors")


def named(argument: str) -> Tuple[str, str]:
    name, equals, path = argument.rpartition("=")
    if not os.path.exists(path):
        raise argparse.ArgumentTypeError(f"{path}: no such file or folder")
    return name, path


def main(args=None) -> None:
    parser = argparse.ArgumentParser(prog="python -m fb_fairseq plot", description=__doc__)
    parser.add_argument("--curves", nargs="+", type=named, default=[], metavar="[NAME=]LOG", help="learning curves")
    parser.add_argument("--metric", default="loss", help="which value: loss, bpb, ppl, accuracy (default: %(default)s)")
    parser.add_argument(
        "--layer-weights", nargs="+", type=named, default=[], metavar="[NAME=]CHECKPOINT", help="the memory's weights"
    )
    parser.add_argument(
        "--spans",
        nargs="+",
        type=named,
        default=[],
        metavar="[NAME=]CHECKPOINT",
        help="adaptive spans by head and layer",
    )
    parser.add_argument(
        "--persistent-shares",
        nargs="+",
        type=named,
        default=[],
        metavar="[NAME=]CHECKPOINT",
        help="attention on persistent vectors by layer and head, on --data",
    )
    parser.add_argument("--data", help="folder of binarised text, for --persistent-shares")
    parser.add_argument("--split", default="valid", help="which of its splits (default: %(default)s)")
    parser.add_argument("--title", default="", help="title of the figure")
    parser.add_argument("--out", required=True, metavar="PNG", help="file to write")
    options = parser.parse_args(args)
    panels = []
    if options.curves:
        panels.append(lambda axes: draw_curves(axes, options.curves, options.metric))
    if options.layer_weights:
        panels.append(lambda axes: draw_layer_weights(axes, options.layer_weights))
    if options.spans:
        panels.append(lambda axes: draw_spans(axes, options.spans))
    if options.persistent_shares and not options.data:
        parser.error("--persistent-shares: give the text to measure them on with --data")
    for name, path in options.persistent_shares:

        def draw(axes, name=name, path=path):
            draw_persistent_shares(axes, name, persistent_shares(path, options.data, options.split))

        panels.append(draw)
    if not panels:
        parser.error("give --curves, --layer-weights, --spans or --persistent-shares, or several of them")

    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, all_axes = pyplot.subplots(1, len(panels), figsize=(6 * len(panels), 4), squeeze=False)
    try:
        for axes, panel in zip(all_axes[0], panels):
            panel(axes)
    except ValueError as error:
        parser.error(str(error))
    if options.title:
        figure.suptitle(options.title)
    figure.tight_layout()
    figure.savefig(options.out, dpi=120)
    print(f"Wrote {options.out}")


if __name__ == "__main__":
    main()
