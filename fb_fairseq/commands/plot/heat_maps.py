"""Draw the heat maps of ``python -m fb_fairseq plot``, each on matplotlib axes of its own."""

from typing import NamedTuple

from fb_fairseq.commands.plot.attention import Attention, AttentionMap
from fb_fairseq.commands.plot.bins import doubling_bins
from fb_fairseq.commands.plot.panels import NamedHeads
from fb_fairseq.drawing import TINY, write_cells

SINGLE_DISTANCES = 16  # the longest span whose distances have a column each
MAP_INCHES = (0.15, 4.0)  # of a token in a map of attention, and of a whole map at least
WRITTEN_CELLS = 160  # numbers in more cells than these could not be read


class NamedAttention(NamedTuple):
    """Attention of a checkpoint by layer and distance."""

    name: str
    attention: Attention


class NamedMap(NamedTuple):
    """Attention of a checkpoint between tokens, and how these are written."""

    name: str
    map: AttentionMap
    labels: list[str]


def draw_persistent_shares(axes, model: NamedHeads) -> None:
    """The share of attention on persistent vectors, layers against heads."""
    image = axes.imshow(model.layers, vmin=0, vmax=1, aspect="auto", origin="lower")
    heads = len(model.layers[0])
    axes.set_xlabel("head")
    set_labels(axes, [str(h) for h in range(1, heads + 1)], len(model.layers))
    axes.set_title(model.name)
    axes.figure.colorbar(image, ax=axes, label="share on persistent vectors")


def set_labels(axes, columns: list[str], layers: int) -> None:
    """Label the columns of a heat map, and its rows, which are layers from the bottom to the top."""
    axes.set_xticks(range(len(columns)), columns)
    axes.set_ylabel("layer")
    axes.set_yticks(range(layers), map(str, range(1, layers + 1)))


def draw_attention(axes, model: NamedAttention) -> None:
    """The share of attention in ranges of distance, layers against distances; persistent vectors are at the left."""
    attention = model.attention
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


def draw_attention_map(axes, model: NamedMap) -> None:
    """Attention between the tokens of a text: the step that reads a token in a row, those before it in the columns."""
    from matplotlib.colors import PowerNorm

    image = axes.imshow(model.map.rows, norm=PowerNorm(0.5, vmin=0, vmax=1), aspect="auto")
    number = len(model.labels) - 1
    axes.set_xticks(range(number), model.labels[:-1], rotation=90, fontsize=TINY)
    axes.set_yticks(range(number), model.labels[1:], fontsize=TINY)
    axes.set_xlabel("step that is attended to")
    axes.set_ylabel("step that attends")
    axes.set_title(", ".join(filter(None, [model.name, model.map.what])))
    axes.figure.colorbar(image, ax=axes, label="share of attention, mean of all heads", shrink=0.8)
