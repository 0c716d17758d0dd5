"""Draw the panels of ``python -m fb_fairseq plot``, each on matplotlib axes of its own."""

from typing import List, NamedTuple

from fb_fairseq.commands.plot.logs import NamedCurves

METRIC_LABELS = {"bpb": "bits per byte", "loss": "bits per token", "ppl": "perplexity", "accuracy": "accuracy (%)"}
BARS_WIDTH = 0.8  # of the bars of a layer together, where layers are 1 apart
SPANS_OFFSET = 0.2  # between the points of one checkpoint and the next


class NamedWeights(NamedTuple):
    """Layer weights of a checkpoint: of the embedding, then of each layer."""

    name: str
    weights: List[float]


class NamedHeads(NamedTuple):
    """One value per layer and head of a checkpoint."""

    name: str
    layers: List[List[float]]


def color(i: int) -> str:
    """The i-th colour of matplotlib's cycle of ten."""
    return f"C{i % 10}"


def centred(i: int, number: int) -> float:
    """The i-th of ``number`` positions with distance 1, centred around 0."""
    return i - (number - 1) / 2


def draw_curves(axes, runs: List[NamedCurves], metric: str, x: str = "updates") -> None:
    """Learning curves: training as thin lines, validation with markers, fine-tuning dashed.

    Args:
        x: what the curves are drawn against, one of ``fb_fairseq.commands.plot.logs.X_AXES``.
    """
    colors = {}
    for i, run in enumerate(runs):
        if not run.continues:
            colors[run.name] = color(i)
        for tag, curve in run.curves.items():
            if tag == "train" and len(run.curves) > 1:
                continue  # averages over whole epochs add little to train_inner
            training = tag.startswith("train")
            style = {"alpha": 0.4, "linewidth": 1} if training else {"marker": "o", "markersize": 4}
            label = " ".join(filter(None, [run.name, "training" if training else tag]))
            if run.continues:
                label, style["linestyle"] = None, "dashed"
            axes.plot(*zip(*sorted(curve)), label=label, color=colors[run.name], **style)
    axes.set_xlabel("hours of training" if x == "hours" else x)
    axes.set_ylabel(METRIC_LABELS.get(metric, metric))
    if metric.endswith("ppl"):
        axes.set_yscale("log")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


def draw_layer_weights(axes, models: List[NamedWeights]) -> None:
    """Bars of the layers' shares in the memory. The models have the same number of layers."""
    width = BARS_WIDTH / len(models)
    for i, (name, weights) in enumerate(models):
        positions = [l + centred(i, len(models)) * width for l in range(len(weights))]
        axes.bar(positions, weights, width, label=name)
    number = len(models[-1].weights)
    axes.set_xticks(range(number))
    axes.set_xticklabels(["embedding"] + [f"layer {l}" for l in range(1, number)])
    axes.axhline(1 / number, color="grey", linestyle=":", label="equal shares (at initialisation)")
    axes.set_ylabel("share of the memory")
    axes.legend()


def draw_spans(axes, models: List[NamedHeads]) -> None:
    """Points for the adaptive spans of all heads. The models have the same number of layers."""
    for i, (name, layers) in enumerate(models):
        offset = centred(i, len(models)) * SPANS_OFFSET
        points = [(l + 1 + offset, span) for l, heads in enumerate(layers) for span in heads]
        axes.scatter(*zip(*points), alpha=0.7, label=name or None, color=color(i))
    axes.set_xticks(range(1, len(models[-1].layers) + 1))
    axes.set_xlabel("layer")
    axes.set_ylabel("span of each head (steps)")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    if any(model.name for model in models):
        axes.legend(fontsize="small")


def draw_persistent_shares(axes, model: NamedHeads) -> None:
    """A heat map of the share of attention on persistent vectors, layers against heads."""
    image = axes.imshow(model.layers, vmin=0, vmax=1, aspect="auto", origin="lower", cmap="viridis")
    heads = len(model.layers[0])
    axes.set_xlabel("head")
    axes.set_ylabel("layer")
    axes.set_xticks(range(heads))
    axes.set_xticklabels(range(1, heads + 1))
    axes.set_yticks(range(len(model.layers)))
    axes.set_yticklabels(range(1, len(model.layers) + 1))
    if model.name:
        axes.set_title(model.name)
    axes.figure.colorbar(image, ax=axes, label="share of attention on persistent vectors")
