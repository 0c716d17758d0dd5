"""Draws what a model does at a step, as HTML and SVG. Texts are escaped: whatever the model writes is shown as text."""

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from fb_fairseq.commands.explore.reading import EOS, ExploredModel, Reading, mix_KA

CANDIDATES = 10  # tokens whose probabilities are shown
EACH_HEAD_ROWS = 24  # more rows than these would be too many to begin with
COLUMNS = 48  # remembered steps with a column of their own, at most
FEW_COLUMNS = 16  # there is room for these from the first step on, so that one sees how the memory fills
NUMBERS = 64  # entries of a memory vector that are shown, at most

# Sizes of the picture of attention and memory, in pixels.
WIDTH, GUTTER, GAP = 760, 104, 10
WIDEST_COLUMN, ROW, LAYER_GAP, CELL = 38, 19, 5, 2.4
CHARACTER = 7.3  # width of a letter in a label


def percent(share: float) -> str:
    """A share in percent, with two digits at least."""
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{100 * share:.1f} %"


def title(name: str, explanation: str) -> str:
    """The heading of a picture, and one line that explains it (HTML)."""
    return f"<h3>{name}</h3><p>{explanation}</p>"


def surprise(reading: Reading, step: int) -> str:
    """The text, each token on a background that says how much it has surprised the model."""
    words, vocabulary = not reading.model.vocabulary.of_bytes, reading.model.vocabulary
    most = math.log2(len(vocabulary))
    parts, labels = [], vocabulary.labels(reading.tokens)
    for t, (token, bits) in enumerate(zip(reading.tokens, reading.bits)):
        label = vocabulary.label(token) if t else "</s>"
        shown = labels[t] if t else label
        shown = " " if shown == "\u2423" else shown  # inside the text, a space is one
        told = f"step {t} reads {label}: surprise {bits:.2f} bits ({percent(2**-bits)})" if t else "step 0: the start"
        classes = "ex-token" + " ex-special" * (not t) + " ex-selected" * (t == step)
        share = min(1.0, bits / most)
        parts.append(
            f'<span class="{classes}" data-step="{t}" style="--share:{share:.3f}" title="{escape(told)}">'
            f"{escape(shown)}</span>"
        )
        if t and vocabulary.ends_line(token):
            parts.append("<br>")
    mean, unit = reading.mean_bits(), vocabulary.unit
    colours = scale(
        "0", "linear-gradient(90deg,rgb(var(--ex-surprise)/0),rgb(var(--ex-surprise)/.8))", f"{most:.1f} bits"
    )
    explanation = (
        f"How unexpected each {unit} was, −log₂ of the probability that the model gave it: "
        f"{colours}, that of a guess among {len(vocabulary):,} symbols. "
        + (f"Mean of {len(reading) - 1:,} {unit}s: <b>{mean:.2f} bits per {unit}</b>. " if mean is not None else "")
        + f"Click a {unit} to see that step."
    )
    kind = " ex-words" if words else ""
    return f'<div class="ex">{title("Surprise", explanation)}<div class="ex-text{kind}">{"".join(parts)}</div></div>'


def products(reading: Reading, step: int) -> str:
    """The elements that a tracker has read, and below each its product so far. Those are marked that differ from the
    text before."""
    found, right, before = reading.products(), reading.right_products(), reading.before
    parts = []
    for t, (product, expected) in enumerate(zip(found, right), 1):
        element = reading.model.vocabulary.symbols[reading.tokens[t]]
        wrong, changed = product != expected, t <= len(before) and product != before[t - 1]
        classes = f"ex-token ex-product{' ex-wrong' * wrong}{' ex-changed' * changed}{' ex-selected' * (t == step)}"
        below = f"<i>{product}</i>" + f"<br><s>{expected}</s>" * wrong
        told = f"step {t} reads {element}: the product is {expected}, and the model says {product}"
        parts.append(f'<span class="{classes}" data-step="{t}" title="{told}">{element}<br>{below}</span>')
    mistakes = sum(product != expected for product, expected in zip(found, right))
    explanation = (
        f"Below each element, which is written as the images of 1, 2, …: the model's product so far. <b>{mistakes} of "
        f"{len(found):,} are wrong</b> (orange, with the right one below). Blue: others than before. Click one to see "
        "that step."
    )
    return f'<div class="ex">{title("Product so far", explanation)}<div class="ex-text">{"".join(parts)}</div></div>'


def bar(name: str, share: float, mark: float | None = None, follows: bool = False, tip: str = "") -> str:
    """A row of a bar chart, with a mark at another share if there is one."""
    marked = "" if not mark else f'<span class="ex-mark" style="left:{100 * mark:.1f}%"></span>'
    return (
        f'<span class="ex-name{" ex-follows" * follows}" title="{escape(name)}">{escape(name)}</span>'
        f'<span class="ex-track" title="{escape(tip)}"><span class="ex-bar" style="width:{100 * share:.1f}%"></span>'
        f'{marked}</span><span class="ex-number">{percent(share)}</span>'
    )


def next_token(reading: Reading, step: int, temperature: float, topk: int) -> str:
    """The distribution of the token after a step."""
    vocabulary = reading.model.vocabulary
    follows = reading.tokens[step + 1] if step + 1 < len(reading) else None
    rows = []
    for token, probability, drawn in reading.candidates(step, CANDIDATES, temperature, topk):
        tip = f"model: {percent(probability)}; drawn in generating: {percent(drawn)}"
        label = "</s>" if token == EOS else vocabulary.next_label(reading.tokens[: step + 1], token)
        rows.append(bar(label, probability, drawn, token == follows, tip))
    explanation = (
        f"What the model expects after step {step}; entropy <b>{reading.entropy(step):.2f} bits</b>. "
        "The mark is the probability in generating, with this temperature and top-k."
        + (" <b>Orange</b>: what follows in the text." if follows is not None else "")
    )
    name = f"Next {vocabulary.unit}"
    return f'<div class="ex">{title(name, explanation)}<div class="ex-bars">{"".join(rows)}</div></div>'


def layer_weights(model: ExploredModel) -> str:
    """The weights of Eq. 1, or of another composition of the memory."""
    weights_KA = mix_KA(model)
    names = ["embedding", *(f"layer {l}" for l in range(1, len(weights_KA[0])))]
    if len(weights_KA) == 1:
        equal = 1 / len(names)
        rows = "".join(bar(name, share, equal, tip=f"{name}: {share:.4f}") for name, share in zip(names, weights_KA[0]))
        explanation = (
            "The memory of a step is this mixture of its embedding and of its layers' outputs (Eq. 1). The mark: equal "
            "shares, as before training."
        )
    else:
        rows = ""
        for k, shares in enumerate(weights_KA, 1):
            used = [(name, share) for name, share in zip(names, shares) if share > 0]
            rows += "".join(bar(f"{k} ← {name}", share, tip=f"{name}: {share:.4f}") for name, share in used)
        explanation = "Each layer has a memory of its own. Layer ← what of a past step it attends to."
    return f'<div class="ex">{title("Layer weights", explanation)}<div class="ex-bars">{rows}</div></div>'


class Columns(NamedTuple):
    """The columns of the picture of attention and memory."""

    steps: Sequence[int]  # remembered steps, oldest first, each with a column
    hidden: int  # number of older ones, which have none
    extra: list[str]  # names of the columns left of them: ``persistent``, ``older``


class Row(NamedTuple):
    """A row of attention: its layer from 1 on, its name, and its shares in the order of the columns."""

    layer: int
    name: str
    shares: list[float]


def columns_of(reading: Reading, step: int) -> Columns:
    """The columns for a step: those of the nearest steps that it remembers."""
    seen = reading.seen(step)
    hidden = max(0, len(seen) - COLUMNS)
    extra = ["persistent"] * (reading.persistent(step) is not None) + ["older"] * bool(hidden)
    return Columns(seen[hidden:], hidden, extra)


def rows_of(reading: Reading, step: int, each_head: bool) -> list[Row]:
    """The attention of a step, the top layer first; of each head, or the mean of a layer's heads."""
    columns, weights_LHC, persistent_LH = columns_of(reading, step), reading.attention(step), reading.persistent(step)
    rows = []
    for l, weights_HC in reversed(list(enumerate(weights_LHC))):
        shares_HC = [
            [*([persistent_LH[l, h].item()] if persistent_LH is not None else [])]
            + ([sum(weights[: columns.hidden])] if columns.hidden else [])
            + weights[columns.hidden :]
            for h, weights in enumerate(weights_HC.tolist())
        ]
        if each_head:
            rows += [Row(l + 1, f"layer {l + 1}, head {h}", shares) for h, shares in enumerate(shares_HC, 1)]
        else:
            mean = [sum(column) / len(shares_HC) for column in zip(*shares_HC)]
            rows.append(Row(l + 1, f"layer {l + 1}", mean))
    return rows


def cell(x: float, y: float, width: float, height: float, share: float, tip: str) -> str:
    """A cell of attention, coloured by the square root of its share, which makes small ones visible."""
    shape = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    colour = math.sqrt(max(0.0, share))
    rect = f'<rect class="a" {shape} fill-opacity="{colour:.3f}"><title>{escape(tip)}</title></rect>'
    if width < 26 or share < 0.005:
        return rect
    on = " ex-on" if colour > 0.62 else ""
    number = f'<text class="ex-cell{on}" x="{x + width / 2:.1f}" y="{y + height - 5:.1f}" font-size="10.5" '
    return rect + number + f'text-anchor="middle" pointer-events="none">{100 * share:.0f}</text>'


def memory_column(vector: Sequence[float], x: float, y: float, width: float, most: float) -> str:
    """A vector of the memory, its numbers from top to bottom."""
    return "".join(
        f'<rect class="{"p" if value > 0 else "n"}" x="{x:.1f}" y="{y + i * CELL:.1f}" width="{width:.1f}" '
        f'height="{CELL}" fill-opacity="{abs(value) / most:.2f}"/>'
        for i, value in enumerate(vector)
    )


def attention_and_memory(reading: Reading, step: int, each_head: bool, memory: int = 1) -> str:
    """Attention of a step, above the memory that it finds and the vector that it adds.

    ``each_head``: a row for each head, instead of one for each layer. ``memory``: which layer's memory is shown, where
    each has its own; from 1 on."""
    vocabulary, columns, rows = reading.model.vocabulary, columns_of(reading, step), rows_of(reading, step, each_head)
    written = ["</s>", *vocabulary.labels(reading.tokens[1:])]
    labels = [written[t] for t in columns.steps]
    extra_width = 64 * len(columns.extra)
    room = WIDTH - GUTTER - extra_width - 2 * GAP
    most = max(len(labels), min(FEW_COLUMNS, max(reading.model.stack.reaches())))
    width = min(WIDEST_COLUMN, room / (most + 1.5))
    first = GUTTER + extra_width + GAP * bool(extra_width) + (most - len(labels)) * width
    new = GUTTER + extra_width + GAP * bool(extra_width) + most * width + GAP
    lefts = [GUTTER + 64 * i for i in range(len(columns.extra))] + [first + i * width for i in range(len(labels))]
    widths = [62] * len(columns.extra) + [width - 1] * len(labels)
    names = [*columns.extra, *labels]
    told = [*columns.extra, *(f"{label}, {step - t} steps back" for t, label in zip(columns.steps, labels))]
    parts, y = [], 6
    for i, row in enumerate(rows):
        y += LAYER_GAP if i and rows[i - 1].layer != row.layer else 0
        parts.append(axis(GUTTER - 8, y + ROW - 6, row.name, "end"))
        for x, w, share, name in zip(lefts, widths, row.shares, told):
            parts.append(cell(x, y, w, ROW - 1, share, f"{row.name}: {percent(share)} on {name}"))
        y += ROW
    longest = max(map(len, [*labels, written[step]]), default=1)
    upright = longest * CHARACTER <= width + 2
    height = 18 if upright else 10 + min(12, longest) * 6.6
    for x, w, name in zip([*lefts, new], [*widths, width - 1], [*names, written[step]]):
        parts.append(column_name(x + w / 2, y, name, upright or name in columns.extra, height))
    y += height + 4
    vectors_CD = [vector[:NUMBERS] for vector in reading.memory(step)[memory - 1][columns.hidden :].tolist()]
    added_D = reading.added(step)[memory - 1].tolist()[:NUMBERS]
    largest = max((abs(value) for vector in [*vectors_CD, added_D] for value in vector), default=1) or 1
    for x, vector in zip([*lefts[len(columns.extra) :], new], [*vectors_CD, added_D]):
        parts.append(memory_column(vector, x, y, width - 1, largest))
    tall, total = len(added_D) * CELL, len(reading.added(step)[memory - 1])
    parts.append(f'<rect class="ex-frame" x="{new - 2:.1f}" y="{y - 2}" width="{width + 3:.1f}" height="{tall + 4}"/>')
    parts.append(axis(GUTTER - 8, y + 12, "memory", "end"))
    parts.append(axis(GUTTER - 8, y + 27, f"{len(added_D)} of {total}" if len(added_D) < total else f"{total}", "end"))
    parts.append(axis(GUTTER - 8, y + 41, "numbers", "end"))
    y += tall + 15
    every = max(1, math.ceil(24 / width))
    for x, t in zip(lefts[len(columns.extra) :], columns.steps):
        if (step - t) % every == 0 or step - t == 1:
            parts.append(axis(x + width / 2, y, f"{step - t}", "middle"))
    parts.append(axis(GUTTER - 8, y, "steps back", "end"))
    parts.append(axis(new + width / 2, y, "new", "middle"))
    size = f'viewBox="0 0 {new + width + 14:.0f} {y + 8:.0f}" width="{new + width + 14:.0f}"'
    svg = f'<svg {size} role="img" aria-label="attention and memory">{"".join(parts)}</svg>'
    return f'<div class="ex">{title("Attention and memory", explanation(reading, step, columns, largest))}{svg}</div>'


def explanation(reading: Reading, step: int, columns: Columns, largest: float) -> str:
    """A caption of the picture of attention and memory (HTML)."""
    label = reading.model.vocabulary.label(reading.tokens[step]) if step else "</s>"
    seen = len(columns.steps) + columns.hidden
    does = f"and attends to the {seen} before it" if seen > 1 else "and attends to step 0" if seen else "first"
    blue = "linear-gradient(90deg,{0}/0),{0}/.5) 25%,{0}/1))".replace("{0}", "rgb(var(--ex-attention)")
    both = "linear-gradient(90deg,rgb(var(--ex-negative)),transparent,rgb(var(--ex-positive)))"
    return (
        f"Step <b>{step}</b> reads <code>{escape(label)}</code> {does}. <b>Above</b>: how each row divides its "
        f"attention, in percent ({scale('0', blue, '100')}). <b>Below</b>: the memory, a vector for each step "
        f"({scale(f'−{largest:.1f}', both, f'{largest:.1f}')}); framed, the one that this step adds."
    )


def scale(low: str, gradient: str, high: str) -> str:
    """A scale of colours between two numbers (HTML)."""
    return f'<span class="ex-range">{low}<span class="ex-scale" style="background:{gradient}"></span>{high}</span>'


def axis(x: float, y: float, text: str, anchor: str) -> str:
    """A text on an axis."""
    return (
        f'<text class="ex-axis" x="{x:.1f}" y="{y:.1f}" font-size="11.5" text-anchor="{anchor}">{escape(text)}</text>'
    )


def column_name(x: float, y: float, name: str, upright: bool, height: float) -> str:
    """The name of a column, turned where it would not fit."""
    if upright:
        place = f'x="{x:.1f}" y="{y + 13:.1f}" font-size="12" text-anchor="middle"'
        return f'<text class="ex-mono" {place}>{escape(name)}</text>'
    short = name if len(name) <= 12 else name[:11] + "…"
    place = f'transform="translate({x + 4:.1f} {y + height - 1:.1f}) rotate(-90)"'
    return f'<text class="ex-mono" {place} font-size="11"><title>{escape(name)}</title>{escape(short)}</text>'
