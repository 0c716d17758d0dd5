"""Attention of a step and the memory that it finds, as HTML."""

import math
from collections.abc import Sequence
from html import escape

import torch
from torch import Tensor

from fb_fairseq.commands.explore.parts import percent, picture, scale
from fb_fairseq.commands.explore.reading import Reading
from fb_fairseq.commands.plot.measures import persistent_in_softmax

EACH_HEAD_ROWS = 24  # more rows than these would be too many to begin with
COLUMNS = 48  # remembered steps with a column of their own, at most
FEW_COLUMNS = 16  # there is room for these from the first step on, so that one sees how the memory fills
NUMBERS = 64  # entries of a memory vector that are shown, at most
WRITTEN_COLUMNS, WRITTEN_SHARE = 22, 0.005  # numbers are written into cells of so many columns, and of such shares
COLUMNS_WIDTH, CHARACTER, TICK = 620, 7.3, 24  # pixels of all columns, of a letter, and between numbers on the axis
LIGHT_TEXT = 0.62  # cells of stronger colours have light numbers
EMPTY = "<span></span>"  # a cell


def shares_of(reading: Reading, step: int) -> tuple[list[str], Tensor]:
    """The attention of a step.

    Returns:
        The names of columns at the left, which stand for no single step, and the shares [L, H, columns]. The other
        columns are the nearest steps in the memory, at most ``COLUMNS``.
    """
    weights_LHC = reading.attention(step)
    parts = {}
    if persistent_in_softmax(reading.model):
        parts["persistent"] = 1 - weights_LHC.sum(-1, keepdim=True)
    if weights_LHC.shape[-1] > COLUMNS:
        parts["older"] = weights_LHC[..., :-COLUMNS].sum(-1, keepdim=True)
    return list(parts), torch.cat([*parts.values(), weights_LHC[..., -COLUMNS:]], -1)


def attention_and_memory(reading: Reading, step: int, each_head: bool, memory: int = 1) -> str:
    """Attention of a step, above the memory that it finds and the vector that it adds (HTML): a grid, whose rows are
    the layers or heads, the top one first; the names of the columns; the memory; and the numbers of steps back.

    Args:
        reading: the text.
        step: the step.
        each_head: a row for each head, instead of one for each layer.
        memory: which layer's memory is shown, where each has its own; from 1 on.
    """
    seen = reading.seen(step)[-COLUMNS:]
    extra, shares_LHC = shares_of(reading, step)
    labels = reading.model.vocabulary.labels(reading.tokens)
    most = max(len(seen), min(FEW_COLUMNS, max(reading.model.stack.reaches())))
    width = COLUMNS_WIDTH / (most + 1)
    blank = [EMPTY] * len(extra)
    rows = []
    told = [*extra, *(f"{labels[t]}, {step - t} step{'s' * (step - t > 1)} back" for t in seen)]
    if not each_head:
        shares_LHC = shares_LHC.mean(1, keepdim=True)
    for l in range(len(shares_LHC), 0, -1):
        for h, shares in enumerate(shares_LHC[l - 1].tolist(), 1):
            name = f"layer {l}, head {h}" if each_head else f"layer {l}"
            cells = [cell(share, f"{name}: {percent(share)} on {what}", most) for share, what in zip(shares, told)]
            rows += row(axis(name), cells[: len(extra)], [*cells[len(extra) :], EMPTY], most + 1)
    names = [column_name(labels[t], len(labels[t]) * CHARACTER > width) for t in [*seen, step]]
    rows += row(EMPTY, list(map(column_name, extra)), names, most + 1)
    vectors_CD = reading.memory(step)[memory - 1, -len(seen) - 1 :]
    vectors, largest = memory_cells(vectors_CD)
    rows += row(axis("memory"), blank, vectors, most + 1)
    every = math.ceil(TICK / width)
    ticks = [str(back) if back % every == 0 or back == 1 else "" for back in range(len(seen), 0, -1)]
    rows += row(axis("steps back"), blank, [axis(tick, "ex-tick") for tick in [*ticks, "new"]], most + 1)
    sizes = f'style="--extra:{len(extra)};--columns:{most + 1}"'
    css = "ex-memory ex-with-extra" if extra else "ex-memory"
    grid = f'<div class="{css}" {sizes}>{"".join(rows)}</div>'
    return picture("Attention and memory", caption(reading, step, largest, vectors_CD.shape[1]), "ex-grid", grid)


def row(name: str, left: list[str], cells: list[str], columns: int) -> list[str]:
    """A row of the grid.

    Args:
        name: its name.
        left: the cells of the columns at the left.
        cells: those of the steps in the memory and of this one; before them are free ones.
        columns: their number, with the free ones.
    """
    return [name, *left, *[EMPTY] * (columns - len(cells)), *cells]


def memory_cells(vectors_CD: Tensor) -> tuple[list[str], float]:
    """The cells of vectors of the memory, the last of which the step adds; and the largest of their numbers."""
    shown_CD = vectors_CD[:, :NUMBERS]
    largest = shown_CD.abs().max().item() or 1.0
    *remembered, added = (shown_CD / largest).tolist()
    return [*map(vector, remembered), vector(added, "ex-vector ex-new")], largest


def axis(text: str, css: str = "ex-axis") -> str:
    """The name of a row, or a number on the axis."""
    return f'<span class="{css}">{text}</span>'


def column_name(text: str, turned: bool = False) -> str:
    """The name of a column, turned where it would not fit."""
    css = "ex-column ex-turned" if turned else "ex-column"
    return f'<span class="{css}" title="{escape(text)}">{escape(text)}</span>'


def cell(share: float, tip: str, columns: int) -> str:
    """A cell of attention, coloured by the square root of its share, which makes small ones visible.

    ``columns``: how many the picture has; in many, there is no room for numbers.
    """
    colour = math.sqrt(max(0.0, share))
    number = f"{100 * share:.0f}" if columns <= WRITTEN_COLUMNS and share >= WRITTEN_SHARE else ""
    css = "ex-cell ex-on" if colour > LIGHT_TEXT else "ex-cell"
    return f'<span class="{css}" style="--share:{colour:.3f}" title="{escape(tip)}">{number}</span>'


def vector(numbers: Sequence[float], css: str = "ex-vector") -> str:
    """A vector of the memory: ``numbers`` from top to bottom, already divided by the largest."""
    bars = (f'<i class="{"p" if x > 0 else "n"}" style="--share:{abs(x):.2f}"></i>' for x in numbers)
    return f'<span class="{css}">{"".join(bars)}</span>'


def caption(reading: Reading, step: int, largest: float, numbers: int) -> str:
    """The explanation of the picture of attention and memory (HTML).

    Args:
        reading: the text.
        step: the step.
        largest: the largest number of the vectors that are shown.
        numbers: how many numbers a vector has.
    """
    label = reading.model.vocabulary.label(reading.tokens[step]) if step else "</s>"
    seen = len(reading.seen(step))
    before = "one" if seen == 1 else str(seen)
    does = f"and attends to the {before} before it" if seen else "first"
    few = f"the first {NUMBERS} are shown; " if numbers > NUMBERS else ""
    blue = ",".join(f"rgb(var(--ex-attention)/{strength}" for strength in ("0)", ".5) 25%", "1)"))
    both = "rgb(var(--ex-negative)),transparent,rgb(var(--ex-positive))"
    return (
        f"Step <b>{step}</b> reads <code>{escape(label)}</code> {does}. <b>Above</b>: how each row divides its "
        f"attention, in percent ({scale('0', blue, '100')}). <b>Below</b>: the memory, a vector of {numbers} numbers "
        f"for each step ({few}{scale(f'−{largest:.1f}', both, f'{largest:.1f}')}); framed, the one that this step adds."
    )
