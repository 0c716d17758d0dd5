"""``python -m fb_fairseq.plot``: draw what was logged and learned.

Curves come from fairseq's logs (``--log-format json --log-file FILE``, or ``--tensorboard-logdir DIR``), layer weights
and adaptive spans from checkpoints. A name may stand before a path: ``Feedback=runs/a/checkpoint_best.pt``.
"""

import argparse
import json
import os
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

    from fb_fairseq import compat  # noqa: F401  lets torch read fairseq's checkpoints

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
        raise ValueError(f"--layer-weights {checkpoint}: its memory has no learned weights; give a checkpoint of "
                         "--memory-composition weighted")
    return torch.softmax(logits.float(), 0).tolist()


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
        axes.bar([l + (i - (len(checkpoints) - 1) / 2) * width for l in range(len(weights))], weights, width, label=name)
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


def named(argument: str) -> Tuple[str, str]:
    name, equals, path = argument.rpartition("=")
    if not os.path.exists(path):
        raise argparse.ArgumentTypeError(f"{path}: no such file or folder")
    return name, path


def main(args=None) -> None:
    parser = argparse.ArgumentParser(prog="python -m fb_fairseq.plot", description=__doc__)
    parser.add_argument("--curves", nargs="+", type=named, default=[], metavar="[NAME=]LOG", help="learning curves")
    parser.add_argument("--metric", default="loss", help="which value: loss, bpb, ppl, accuracy (default: %(default)s)")
    parser.add_argument(
        "--layer-weights", nargs="+", type=named, default=[], metavar="[NAME=]CHECKPOINT", help="the memory's weights"
    )
    parser.add_argument(
        "--spans", nargs="+", type=named, default=[], metavar="[NAME=]CHECKPOINT", help="adaptive spans by head and layer"
    )
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
    if not panels:
        parser.error("give --curves, --layer-weights or --spans, or several of them")

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
