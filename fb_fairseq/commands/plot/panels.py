"""Draw the panels of ``python -m fb_fairseq plot``, each on matplotlib axes of its own."""

import math
from typing import Any, NamedTuple

from fb_fairseq.commands.plot.files import NamedCurves
from fb_fairseq.commands.plot.measures import ContextLosses, doubling_bins
from fb_fairseq.drawing import (
    GREY,
    TINY,
    colors,
    draw_curve,
    draw_reference,
    explain_curves,
    ordered_color,
    write_cells,
    write_out,
)

METRIC_LABELS = {
    "bpb": "bits per byte",
    "loss": "bits per token",
    "nll_loss": "nll (bits per token)",
    "ppl": "perplexity",
    "accuracy": "accuracy (%)",
}
BARS_WIDTH = 0.8  # of the bars of a layer together, where layers are 1 apart
SPANS_OFFSET = 0.2  # between the points of one checkpoint and the next
USE_MARKS = (0.5, 0.9)  # shares of attention for which the legend says how many vectors take them
MOST_POINTS = 100  # points that a line has, at most
TAGS = {"train": "training", "train_inner": "training", "valid": "validation"}  # in the legend
LOSSES = ("loss", "ppl", "bpb")  # ends of the names of metrics that fall
MOST_TRAINING_CURVES = 4  # in a panel: more would hide the validation curves
STEEP_PART = 0.1  # of a line: losses begin so high that all differences after it would be invisible
SINGLE_DISTANCES = 16  # the longest span whose distances have a column each
MAP_INCHES = (0.15, 4.0)  # of a token in a map of attention, and of a whole map at least
WRITTEN_CELLS = 160  # numbers in more cells than these could not be read


class Named(NamedTuple):
    """A value of one model or run, with the name that the legend shows."""

    name: str
    value: Any


def centred(i: int, number: int) -> float:
    """The i-th of ``number`` positions with distance 1, centred around 0."""
    return i - (number - 1) / 2


def draw_curves(axes, runs: list[NamedCurves], metric: str, x: str = "updates") -> None:
    """Learning curves: training as thin lines, validation with markers, fine-tuning dashed.

    Of more than four runs, those that have validation curves are drawn without training. The y axis of losses ends at
    the highest value after the first tenth of the curves.

    ``x``: what the curves are drawn against, one of ``fb_fairseq.commands.plot.files.X_AXES``."""
    names = [run.name for run in runs if not run.continues]
    color = colors(names)
    crowded = len(names) > MOST_TRAINING_CURVES
    kinds = {}
    for run in runs:
        validated = any(not tag.startswith("train") for tag in run.curves)
        for tag, curve in run.curves.items():
            training = tag.startswith("train")
            if tag == "train" and len(run.curves) > 1:
                continue  # averages over whole epochs add little to train_inner
            if training and crowded and validated:
                continue
            draw_curve(axes, curve, color[run.name], training, run.continues)
            kinds[TAGS.get(tag, tag)] = training, False
    if any(run.continues for run in runs):
        kinds["fine-tuning"] = "training" in kinds, True
    axes.set_xlabel("hours of training" if x == "hours" else x)
    axes.set_ylabel(METRIC_LABELS.get(metric, metric))
    if metric.endswith("ppl"):
        axes.set_yscale("log")
        write_out(axes.yaxis)
    if metric.endswith(LOSSES):
        cut_steep_part(axes)
    explain_curves(axes, {name: color[name] for name in names if name}, kinds)


def cut_steep_part(axes) -> None:
    """End the y axis where the lines are after their first tenths: losses begin far above."""
    values = []
    for line in axes.lines:
        start = STEEP_PART * max(line.get_xdata())
        values += [y for x, y in zip(*line.get_data()) if x >= start and math.isfinite(y)]
    if values:
        axes.dataLim.intervaly = (min(values), max(values))
        axes.autoscale_view()


def draw_layer_weights(axes, models: list[Named]) -> None:
    """Bars of the layers' shares in the memory."""
    width = BARS_WIDTH / len(models)
    color = colors(name for name, _ in models)
    for i, (name, weights) in enumerate(models):
        positions = [l + centred(i, len(models)) * width for l in range(len(weights))]
        axes.bar(positions, weights, width, label=name, color=color[name])
    numbers = sorted({len(weights) for _, weights in models})
    axes.set_xticks(range(numbers[-1]), ["embedding", *map(str, range(1, numbers[-1]))])
    if len(numbers) == 1:
        draw_reference(axes, 1 / numbers[0], "equal shares (at initialisation)")
    axes.set_xlabel("layer")
    axes.set_ylabel("share of the memory")


def draw_spans(axes, models: list[Named]) -> None:
    """Points for the adaptive spans of all heads."""
    color = colors(name for name, _ in models)
    for i, (name, layers) in enumerate(models):
        offset = centred(i, len(models)) * SPANS_OFFSET
        points = [(l + 1 + offset, span) for l, heads in enumerate(layers) for span in heads]
        axes.scatter(*zip(*points), alpha=0.7, label=name, color=color[name])
    axes.set_xticks(range(1, max(len(layers) for _, layers in models) + 1))
    axes.set_xlabel("layer")
    axes.set_ylabel("span of each head (steps)")
    axes.set_ylim(bottom=0)


def draw_layer_weights_over_training(axes, run: Named) -> None:
    """The layers' shares in the memory against updates, from the embedding (dark) to the top layer (light)."""
    number = len(run.value)
    for l, curve in enumerate(run.value):
        label = f"layer {l}" if l else "embedding"
        axes.plot(*zip(*sorted(curve)), label=label, color=ordered_color(l, number), marker="o")
    draw_reference(axes, 1 / number, "equal shares (at initialisation)")
    axes.set_xlabel("updates")
    axes.set_ylabel("share of the memory")
    axes.set_ylim(bottom=0)
    axes.set_title(run.name)


def draw_persistent_use(axes, model: Named) -> None:
    """The share of the most used persistent vectors against their number, from the lowest layer (dark) to the top."""
    number = len(model.value)
    vectors = len(model.value[0])
    for l, shares in enumerate(model.value):
        half, most = (1 + sum(share < part for share in shares) for part in USE_MARKS)
        label = f"layer {l + 1}: half in {min(half, vectors)}, 90% in {min(most, vectors)}"
        percent = [100 * share for share in shares]
        axes.plot(range(1, vectors + 1), percent, label=label, color=ordered_color(l, number))
    equal = [100 * n / vectors for n in range(1, vectors + 1)]
    axes.plot(range(1, vectors + 1), equal, color=GREY, linestyle=":", label="all used equally")
    for part in USE_MARKS:
        draw_reference(axes, 100 * part)
    axes.set_xscale("log")
    write_out(axes.xaxis)
    axes.set_xlabel(f"most used of each head's {vectors} persistent vectors")
    axes.set_ylabel("their share of attention on all of them (%)")
    axes.set_ylim(0, 101)
    axes.set_title(model.name)


def drawn_values(losses: ContextLosses) -> list[float]:
    """Perplexities, or for bytes bits per byte."""
    return [nats / math.log(2) if losses.bytes else math.exp(nats) for nats in losses.nats]


def context_table(models: list[Named]) -> list[str]:
    """The lines of a table in Markdown with the values that ``draw_context_losses`` draws."""
    lines = ["| context | " + " | ".join(name for name, _ in models) + " |", "|---:|" + "---:|" * len(models)]
    columns = [drawn_values(losses) for _, losses in models]
    for i, (fewest, most) in enumerate(models[-1].value.bins):
        context = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        lines.append("| " + " | ".join([context, *(f"{column[i]:.3f}" for column in columns)]) + " |")
    return lines


def draw_context_losses(axes, models: list[Named]) -> None:
    """Perplexity, or for bytes bits per byte, against the tokens of context. The models read the same text."""
    is_bytes = models[-1].value.bytes
    color = colors(name for name, _ in models)
    for name, losses in models:
        middle = [math.sqrt(fewest * most) for fewest, most in losses.bins]
        axes.plot(middle, drawn_values(losses), label=name, color=color[name], marker="o")
    ticks = [most for _, most in models[-1].value.bins]
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, map(str, ticks))
    axes.set_xlabel(f"context since an empty memory ({'bytes' if is_bytes else 'tokens'})")
    axes.set_ylabel("bits per byte" if is_bytes else "perplexity")


def pass_values(models: list[Named]) -> list[str]:
    """The numbers that ``draw_passes`` draws, a line for each model."""
    return [f"{name or 'passes'}: {', '.join(f'{error:.2g}' for error in errors)}" for name, errors in models]


def draw_passes(axes, models: list[Named]) -> None:
    """The error of the memory against the number of passes."""
    color = colors(name for name, _ in models)
    for name, errors in models:
        axes.plot(range(1, len(errors) + 1), errors, label=name, color=color[name], marker=".")
    axes.set_yscale("log")
    axes.set_xlabel("passes over all steps at once")
    axes.set_ylabel("error of the memory, relative to its norm")


def draw_position_accuracy(axes, models: list[Named]) -> None:
    """Accuracy against the position in the sequence; of long sequences, means of neighbouring positions."""
    color = colors(name for name, _ in models)
    for name, counts in models:
        width = math.ceil(len(counts.labels) / MOST_POINTS)
        points = []
        for first in range(1, len(counts.labels), width):
            labels, correct = (sum(values[first : first + width]) for values in counts)
            if labels:
                last = min(first + width, len(counts.labels)) - 1
                points.append(((first + last) / 2, 100 * correct / labels))
        total = 100 * sum(counts.correct) / sum(counts.labels)
        label = " ".join(filter(None, [name, f"({total:.1f}% of all labels)"]))
        axes.plot(*zip(*points), label=label, color=color[name], marker="o")
    axes.set_xlabel("position in the sequence (tokens)")
    axes.set_ylabel("accuracy (%)")
    axes.set_ylim(0, 101)


def draw_persistent_shares(axes, model: Named) -> None:
    """The share of attention on persistent vectors, layers against heads."""
    image = axes.imshow(model.value, vmin=0, vmax=1, aspect="auto", origin="lower")
    heads = len(model.value[0])
    axes.set_xlabel("head")
    set_labels(axes, [str(h) for h in range(1, heads + 1)], len(model.value))
    axes.set_title(model.name)
    axes.figure.colorbar(image, ax=axes, label="share on persistent vectors")


def set_labels(axes, columns: list[str], layers: int) -> None:
    """Label the columns of a heat map, and its rows, which are layers from the bottom to the top."""
    axes.set_xticks(range(len(columns)), columns)
    axes.set_ylabel("layer")
    axes.set_yticks(range(layers), map(str, range(1, layers + 1)))


def draw_attention(axes, model: Named) -> None:
    """The share of attention in ranges of distance, layers against distances; persistent vectors are at the left."""
    attention = model.value
    span = len(attention.layers[0])
    bins = [(d, d) for d in range(1, span + 1)] if span <= SINGLE_DISTANCES else doubling_bins(span)
    shares = [[100 * sum(layer[nearest - 1 : farthest]) for nearest, farthest in bins] for layer in attention.layers]
    columns = [str(nearest) if nearest == farthest else f"{nearest}–{farthest}" for nearest, farthest in bins]
    if attention.persistent is not None:
        shares = [[100 * share, *row] for share, row in zip(attention.persistent, shares)]
        columns = ["persistent", *columns]
    image = axes.imshow(shares, vmin=0, aspect="auto", origin="lower")
    set_labels(axes, columns, len(shares))
    axes.tick_params(axis="x", rotation=45 if len(columns) > 6 else 0)
    if len(columns) * len(shares) <= WRITTEN_CELLS:
        write_cells(axes, shares, top=max(map(max, shares)))
    axes.set_xlabel("distance (steps back)")
    axes.set_title(model.name)
    axes.figure.colorbar(image, ax=axes, label="share of attention (%)")


def map_inches(tokens: int) -> float:
    """Width and height of a map of attention between so many tokens."""
    each, least = MAP_INCHES
    return max(least, each * tokens + 1)


def draw_attention_map(axes, model: Named, labels: list[str]) -> None:
    """Attention between the tokens of a text, which the labels show: the step that reads a token in a row, those before
    it in the columns."""
    from matplotlib.colors import PowerNorm

    image = axes.imshow(model.value.rows, norm=PowerNorm(0.5, vmin=0, vmax=1), aspect="auto")
    number = len(labels) - 1
    axes.set_xticks(range(number), labels[:-1], rotation=90, fontsize=TINY)
    axes.set_yticks(range(number), labels[1:], fontsize=TINY)
    axes.set_xlabel("step that is attended to")
    axes.set_ylabel("step that attends")
    axes.set_title(", ".join(filter(None, [model.name, model.value.what])))
    axes.figure.colorbar(image, ax=axes, label="share of attention, mean of all heads", shrink=0.8)
