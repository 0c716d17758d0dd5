"""Draws what a model does at a step, as HTML. Texts are escaped: whatever the model writes is shown as text."""

import math
from collections.abc import Sequence
from html import escape

import torch
from torch import Tensor

from fb_fairseq.commands.explore.reading import Reading
from fb_fairseq.commands.plot.measures import persistent_in_softmax
from fb_fairseq.pretrained.model import LanguageModel

CANDIDATES = 10  # tokens whose probabilities are shown
EACH_HEAD_ROWS = 24  # more rows than these would be too many to begin with
COLUMNS = 48  # remembered steps with a column of their own, at most
FEW_COLUMNS = 16  # there is room for these from the first step on, so that one sees how the memory fills
NUMBERS = 64  # entries of a memory vector that are shown, at most
WRITTEN_COLUMNS, WRITTEN_SHARE = 22, 0.005  # numbers are written into cells of so many columns, and of such shares
COLUMNS_WIDTH, CHARACTER, TICK = 620, 7.3, 24  # pixels of all columns, of a letter, and between numbers on the axis
LIGHT_TEXT = 0.62  # cells of stronger colours have light numbers
EMPTY = "<span></span>"  # a cell


def percent(share: float) -> str:
    """A share in percent, with two digits at least."""
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{100 * share:.1f} %"


def picture(title: str, explanation: str, css: str, content: str) -> str:
    """A picture below its heading, and what explains it (HTML)."""
    return f'<div class="ex"><h3>{title}</h3><p>{explanation}</p><div class="{css}">{content}</div></div>'


def surprise(reading: Reading, step: int) -> str:
    """The text, each token on a background that says how much it has surprised the model."""
    vocabulary = reading.model.vocabulary
    unit, most = vocabulary.unit, math.log2(len(vocabulary))
    parts = []
    for t, (token, bits, shown) in enumerate(zip(reading.tokens, reading.bits, vocabulary.labels(reading.tokens))):
        told = f"step {t} reads {vocabulary.label(token)}: surprise {bits:.2f} bits ({percent(2**-bits)})"
        if t == 0:
            told = "step 0: the start"
        if shown == "\u2423":
            shown = " "  # inside the text, a space is one
        css = "ex-token" + " ex-special" * (t == 0) + " ex-selected" * (t == step)
        parts.append(
            f'<span class="{css}" data-step="{t}" style="--share:{min(1.0, bits / most):.3f}" title="{escape(told)}">'
            f"{escape(shown)}</span>"
        )
        if t and vocabulary.ends_line(token):
            parts.append("<br/>")
    read = len(reading) - 1
    mean = f"Mean of {read:,} {unit}s: <b>{sum(reading.bits) / read:.2f} bits per {unit}</b>. " if read else ""
    colours = scale("0", "transparent,rgb(var(--ex-surprise)/.8)", f"{most:.1f} bits")
    explanation = (
        f"How unexpected each {unit} was, −log₂ of the probability that the model gave it: {colours}, that of a guess "
        f"among {len(vocabulary):,} symbols. {mean}Click a {unit} to see that step."
    )
    css = "ex-text" if vocabulary.of_bytes else "ex-text ex-words"
    return picture("Surprise", explanation, css, "".join(parts))


def products(reading: Reading, step: int) -> str:
    """The elements that a tracker has read, and below each its product so far. Products are marked that differ from
    those in the text before.
    """
    found = reading.products()
    right = reading.right_products()
    before = reading.before
    parts = []
    for t, (product, expected) in enumerate(zip(found, right), 1):
        element = reading.model.vocabulary.symbols[reading.tokens[t]]
        given = escape(product)  # which may be a special symbol
        wrong = product != expected
        changed = t <= len(before) and product != before[t - 1]
        css = "ex-token ex-product" + " ex-wrong" * wrong + " ex-changed" * changed + " ex-selected" * (t == step)
        below = f"<i>{given}</i><br/><s>{expected}</s>" if wrong else f"<i>{given}</i>"
        told = f"step {t} reads {element}: the product is {expected}, and the model says {given}"
        parts.append(f'<span class="{css}" data-step="{t}" title="{told}">{element}<br/>{below}</span>')
    mistakes = sum(product != expected for product, expected in zip(found, right))
    explanation = (
        "Below each element, which is written as the images of 1, 2, …: the model's product so far, in which the "
        f"newest element acts first. <b>{mistakes} of {len(found):,} are wrong</b> (orange, with the right one below). "
        "Blue: others than before. Click one to see that step."
    )
    return picture("Product so far", explanation, "ex-text", "".join(parts))


def bar(name: str, share: float, mark: float = 0.0, follows: bool = False, tip: str = "") -> str:
    """A row of a bar chart, with a mark at another share if there is one.

    Args:
        name: of the row.
        share: the length of its bar, of 1.
        mark: the other share; 0: none.
        follows: whether the row is that of the token that follows in the text.
        tip: text over the bar.
    """
    css = "ex-name ex-follows" if follows else "ex-name"
    marked = f'<span class="ex-mark" style="left:{100 * mark:.1f}%"></span>' if mark else ""
    return (
        f'<span class="{css}" title="{escape(name)}">{escape(name)}</span>'
        f'<span class="ex-track" title="{escape(tip)}"><span class="ex-bar" style="width:{100 * share:.1f}%"></span>'
        f'{marked}</span><span class="ex-number">{percent(share)}</span>'
    )


def next_token(reading: Reading, step: int, temperature: float, topk: int) -> str:
    """The distribution of the token after a step: the likeliest ones, and the one that follows it in the text."""
    vocabulary, text = reading.model.vocabulary, reading.tokens[: step + 1]
    probabilities = reading.next_log_probs(step).exp()
    drawn = reading.drawn(step, temperature, topk)
    follows = reading.tokens[step + 1 : step + 2]
    rows = []
    for token in dict.fromkeys(probabilities.topk(min(CANDIDATES, len(vocabulary))).indices.tolist() + follows):
        share = probabilities[token].item()
        chance = drawn[token].item()
        tip = f"model: {percent(share)}; drawn in generating: {percent(chance)}"
        rows.append(bar(vocabulary.next_label(text, token), share, chance, token in follows, tip))
    explanation = (
        f"What the model expects after step {step}; entropy <b>{reading.entropy(step):.2f} bits</b>. The mark is the "
        "probability in generating, with this temperature and top-k."
    )
    if follows:
        explanation += " <b>Orange</b>: what follows in the text."
    return picture(f"Next {vocabulary.unit}", explanation, "ex-bars", "".join(rows))


@torch.no_grad()
def mix(model: LanguageModel) -> list[list[float]]:
    """The weights of the embedding and of each layer's output in each memory, [K, L + 1]. K is 1, or the number of
    layers where each has a memory of its own.
    """
    return model.stack.loop_weights(model.device, model.stack.reaches()).mix_KA.tolist()


def layer_weights(model: LanguageModel) -> str:
    """The weights of Eq. 1, or of another composition of the memory."""
    weights_KA = mix(model)
    is_one = len(weights_KA) == 1
    memory = getattr(model.stack, "memory", None)
    is_learned = is_one and memory is not None and memory.layer_weights is not None
    rows = []
    for k, shares in enumerate(weights_KA, 1):
        for layer, share in enumerate(shares):
            name = f"layer {layer}" if layer else "embedding"
            if share > 0:
                row = name if is_one else f"{k} ← {name}"
                equal = 1 / len(shares) if is_learned else 0.0
                rows.append(bar(row, share, equal, tip=f"{name}: {share:.4f}"))
    explanation = "Each layer has a memory of its own. Layer ← what of a past step it attends to."
    if is_one:
        explanation = "The memory of a step is this mixture of its embedding and of its layers' outputs."
    if is_learned:
        explanation += " The mark: equal shares, as before training."
    return picture("Layer weights", explanation, "ex-bars", "".join(rows))


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

    def add_row(name: str, left: list[str], cells: list[str]) -> None:
        """Add a row: its name, cells of ``extra``, free ones, and those of the steps in the memory and of this one."""
        rows.extend([name, *left, *[EMPTY] * (most - len(seen)), *cells])

    told = [*extra, *(f"{labels[t]}, {step - t} steps back" for t in seen)]
    if not each_head:
        shares_LHC = shares_LHC.mean(1, keepdim=True)
    for l in range(len(shares_LHC), 0, -1):
        for h, shares in enumerate(shares_LHC[l - 1].tolist(), 1):
            name = f"layer {l}, head {h}" if each_head else f"layer {l}"
            cells = [cell(share, f"{name}: {percent(share)} on {what}", most) for share, what in zip(shares, told)]
            add_row(axis(name), cells[: len(extra)], [*cells[len(extra) :], EMPTY])
    names = [column_name(labels[t], len(labels[t]) * CHARACTER > width) for t in [*seen, step]]
    add_row(EMPTY, list(map(column_name, extra)), names)
    vectors_CD = reading.memory(step)[memory - 1, -len(seen) - 1 :]
    vectors, largest = memory_cells(vectors_CD)
    add_row(axis("memory"), blank, vectors)
    every = math.ceil(TICK / width)
    ticks = [str(back) if back % every == 0 or back == 1 else "" for back in range(len(seen), 0, -1)]
    add_row(axis("steps back"), blank, [axis(tick, "ex-tick") for tick in [*ticks, "new"]])
    sizes = f'style="--extra:{len(extra)};--columns:{most + 1}"'
    css = "ex-memory ex-with-extra" if extra else "ex-memory"
    grid = f'<div class="{css}" {sizes}>{"".join(rows)}</div>'
    return picture("Attention and memory", caption(reading, step, largest, vectors_CD.shape[1]), "ex-grid", grid)


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
    does = "first"
    if seen:
        does = f"and attends to the {seen} before it" if seen > 1 else "and attends to step 0"
    few = f"the first {NUMBERS} are shown; " if numbers > NUMBERS else ""
    blue = "{0}/0),{0}/.5) 25%,{0}/1)".replace("{0}", "rgb(var(--ex-attention)")
    both = "rgb(var(--ex-negative)),transparent,rgb(var(--ex-positive))"
    return (
        f"Step <b>{step}</b> reads <code>{escape(label)}</code> {does}. <b>Above</b>: how each row divides its "
        f"attention, in percent ({scale('0', blue, '100')}). <b>Below</b>: the memory, a vector of {numbers} numbers "
        f"for each step ({few}{scale(f'−{largest:.1f}', both, f'{largest:.1f}')}); framed, the one that this step adds."
    )


def scale(low: str, colours: str, high: str) -> str:
    """A scale of colours between two numbers (HTML)."""
    gradient = f'<span class="ex-scale" style="background:linear-gradient(90deg,{colours})"></span>'
    return f'<span class="ex-range">{low}{gradient}{high}</span>'
