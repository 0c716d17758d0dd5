"""Draw the panels of ``fb-fairseq plot``, each on matplotlib axes of its own."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fb_fairseq.commands.plot.logs import SECONDS, Curve, Curves, continued
from fb_fairseq.drawing.figure import plain_text
from fb_fairseq.drawing.marks import draw_curve, draw_lines, draw_reference, explain_curves, write_cells, write_out
from fb_fairseq.drawing.models import colors, ordered_colors
from fb_fairseq.drawing.style import TINY

if TYPE_CHECKING:  # measures import torch, which curves do without
    from fb_fairseq.commands.label_accuracy import PositionCounts
    from fb_fairseq.commands.plot.context import ContextLosses
    from fb_fairseq.commands.plot.measures import AttentionMap, Shares

METRIC_LABELS = {
    "bpb": "bits per byte",
    "loss": "bits per token",
    "nll_loss": "loss without smoothing (bits per token)",
    "ppl": "perplexity",
    "accuracy": "accuracy (%)",
}
EQUAL = "equal shares (at initialisation)"
BARS_WIDTH = 0.8  # of the bars of a layer together, where layers are 1 apart
SPANS_WIDTH = 0.4  # of the points of a layer together
MOST_POINTS = 100  # points that a line has, at most
TAGS = {"train": "training", "train_inner": "training", "valid": "validation"}  # in the legend
LOSSES = ("loss", "ppl", "bpb")  # ends of the names of metrics that fall
MOST_TRAINING_CURVES = 4  # in a panel: more would hide the validation curves
STEEP_PART = 0.1  # of a line: losses begin so high that all differences after it would be invisible
TOKEN_OF_MAP, LEAST_MAP = 0.15, 4.0  # inches of a token in a map of attention, and of a whole map at least
WRITTEN_CELLS = 160  # numbers in more cells than these could not be read


def draw_curves(axes, found: Mapping[str, Sequence[Curves]], metric: str, x: str = "updates") -> None:
    """Learning curves: training as thin lines, validation with markers, fine-tuning dashed.

    Of more than four runs, those that have validation curves are drawn without training. The y axis of losses ends at
    the highest value after the first tenth of the curves.

    Args:
        found: the stages of each run, by its name: training, and perhaps fine-tuning.
        metric: its name in logs.
        x: what the curves are drawn against, one of ``fb_fairseq.commands.plot.logs.X_AXES``.
    """
    color, kinds = colors(found), {}
    for name, stages in found.items():
        for stage, curves in enumerate(continued(stages)):
            validated = any(not tag.startswith("train") for tag in curves)
            for tag, curve in curves.items():
                training = tag.startswith("train")
                if tag == "train" and len(curves) > 1:
                    continue  # averages over whole epochs add little to train_inner
                if training and validated and len(found) > MOST_TRAINING_CURVES:
                    continue
                draw_curve(axes, curve, color[name], training, stage > 0)
                kinds[TAGS.get(tag, tag)] = training, False
    if any(len(stages) > 1 for stages in found.values()):
        kinds["fine-tuning"] = "training" in kinds, True
    axes.set_xlabel(f"{x} of training" if x in SECONDS else x)
    axes.set_ylabel(METRIC_LABELS.get(metric, metric))
    if metric.endswith("ppl"):
        axes.set_yscale("log")
        write_out(axes.yaxis)
    if metric.endswith(LOSSES):
        cut_steep_part(axes)
    explain_curves(axes, color, kinds)


def cut_steep_part(axes) -> None:
    """End the y axis where the lines are after their first tenths: losses begin far above."""
    values = []
    for line in axes.lines:
        start = STEEP_PART * max(line.get_xdata())
        values += [y for x, y in zip(*line.get_data()) if x >= start and math.isfinite(y)]
    if values:
        axes.dataLim.intervaly = (min(values), max(values))
        axes.autoscale_view()


def draw_layer_weights(axes, found: Mapping[str, list[float]]) -> None:
    """Bars of the layers' shares in the memory. ``found``: the shares of the embedding and of each layer."""
    width = BARS_WIDTH / len(found)
    color = colors(found)
    for i, (name, weights) in enumerate(found.items()):
        left = width * i - BARS_WIDTH / 2
        axes.bar([l + left for l in range(len(weights))], weights, width, align="edge", label=name, color=color[name])
    numbers = sorted(set(map(len, found.values())))
    axes.set_xticks(range(numbers[-1]), ["embedding", *map(str, range(1, numbers[-1]))])
    if len(numbers) == 1:
        draw_reference(axes, 1 / numbers[0], EQUAL)
    axes.set(xlabel="layer", ylabel="share of the memory")


def draw_spans(axes, found: Mapping[str, list[list[float]]]) -> None:
    """Points for the adaptive spans of all heads. ``found``: the spans by layer and head."""
    color = colors(found)
    for i, (name, layers) in enumerate(found.items()):
        offset = SPANS_WIDTH * (i + 0.5) / len(found) - SPANS_WIDTH / 2
        points = [(l + offset, span) for l, heads in enumerate(layers, 1) for span in heads]
        axes.scatter(*zip(*points), alpha=0.7, label=name, color=color[name])
    axes.set_xticks(range(1, max(map(len, found.values())) + 1))
    axes.set(xlabel="layer", ylabel="span of each head (steps)")
    axes.set_ylim(bottom=0)


def draw_layer_weights_over_training(axes, found: Sequence[Curve]) -> None:
    """The layers' shares in the memory against updates, from the embedding (dark) to the top layer (light)."""
    names = ["embedding", *(f"layer {l}" for l in range(1, len(found)))]
    lines = {name: tuple(zip(*sorted(curve))) for name, curve in zip(names, found)}
    draw_lines(axes, lines, ordered_colors(lines), marker="o")
    draw_reference(axes, 1 / len(found), EQUAL)
    axes.set(xlabel="updates", ylabel="share of the memory")
    axes.set_ylim(bottom=0)


def draw_persistent_use(axes, found: Sequence[list[float]]) -> None:
    """The share of the most used persistent vectors against their number, from the lowest layer (dark) to the top."""
    vectors = range(1, len(found[0]) + 1)
    lines = {f"layer {l}": (vectors, [100 * share for share in shares]) for l, shares in enumerate(found, 1)}
    draw_lines(axes, lines, ordered_colors(lines))
    draw_lines(axes, {"all used equally": (vectors, [100 * n / len(vectors) for n in vectors])}, linestyle=":")
    axes.set_xscale("log")
    write_out(axes.xaxis)
    axes.set_xlabel(f"most used of each head's {len(vectors)} persistent vectors")
    axes.set_ylabel("their share of attention on all of them (%)")
    axes.set_ylim(0, 101)


def context_table(found: Mapping[str, "ContextLosses"]) -> list[str]:
    """The lines of a table in Markdown with the values that ``draw_context_losses`` draws."""
    lines = ["| context | " + " | ".join(found) + " |", "|---:|" + "---:|" * len(found)]
    bins = next(iter(found.values())).bins
    for (fewest, most), *values in zip(bins, *(losses.values for losses in found.values())):
        context = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        lines.append("| " + " | ".join([context, *(f"{value:.3f}" for value in values)]) + " |")
    return lines


def draw_context_losses(axes, found: Mapping[str, "ContextLosses"]) -> None:
    """Perplexity, or for bytes bits per byte, against the tokens of context. The models read the same text."""
    *_, last = found.values()
    ticks = [most for _, most in last.bins]
    lines = {}
    for name, losses in found.items():
        lines[name] = [math.sqrt(fewest * most) for fewest, most in losses.bins], losses.values
    draw_lines(axes, lines, marker="o")
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, map(str, ticks))
    axes.set_xlabel(f"context since an empty memory ({last.unit}s)")
    axes.set_ylabel("bits per byte" if last.unit == "byte" else "perplexity")


def draw_position_accuracy(axes, found: Mapping[str, "PositionCounts"]) -> None:
    """Accuracy against the position in the sequence; of long sequences, means of neighbouring positions."""
    lines = {}
    for name, counts in found.items():
        positions = np.flatnonzero(counts.labels)
        parts = np.array_split(positions, min(MOST_POINTS, len(positions)))
        labels, correct = (np.array([np.take(each, part).sum() for part in parts]) for each in counts)
        total = f"({100 * correct.sum() / labels.sum():.1f}% of all labels)"
        lines[f"{name} {total}".strip()] = [part.mean() for part in parts], 100 * correct / labels
    draw_lines(axes, lines, marker="o")
    axes.set(xlabel="position in the sequence (tokens)", ylabel="accuracy (%)", ylim=(0, 101))


def draw_shares(axes, found: "Shares") -> None:
    """Shares of attention: a row for each layer, from the bottom to the top."""
    image = axes.imshow(found.rows, vmin=0, aspect="auto", origin="lower")
    columns = len(found.columns)
    layers = len(found.rows)
    axes.set_xticks(range(columns), found.columns, rotation=45 if max(map(len, found.columns)) > 2 else 0)
    axes.set_yticks(range(layers), map(str, range(1, layers + 1)))
    if columns * layers <= WRITTEN_CELLS:
        write_cells(axes, found.rows, top=max(map(max, found.rows)))
    axes.set(xlabel=found.what, ylabel="layer")
    axes.figure.colorbar(image, ax=axes, label="share of attention (%)")


def map_size(found: "AttentionMap") -> tuple[float, float]:
    """Width and height of a map of attention, in inches."""
    side = max(LEAST_MAP, TOKEN_OF_MAP * len(found.labels) + 1)
    return side + 1, side


def draw_attention_map(axes, found: "AttentionMap") -> None:
    """Attention between the tokens of a text: the step that reads a token in a row, those before it in the columns."""
    from matplotlib.colors import PowerNorm

    image = axes.imshow(found.rows, norm=PowerNorm(0.5, vmin=0, vmax=1), aspect="auto")
    number = len(found.rows)
    labels = list(map(plain_text, found.labels))
    axes.set_xticks(range(number), labels[:-1], rotation=90, fontsize=TINY)
    axes.set_yticks(range(number), labels[1:], fontsize=TINY)
    axes.set(xlabel="step that is attended to", ylabel="step that attends", title=found.what)
    axes.figure.colorbar(image, ax=axes, label="share of attention\n(square-root scale)", shrink=0.8)
