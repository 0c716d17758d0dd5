"""A text that a model has read, what it expects next, and its layers' weights, as HTML.

Texts are escaped: whatever the model writes is shown as text.
"""

import math
from html import escape

import torch

from fb_fairseq.commands.explore.reading import Reading
from fb_fairseq.pretrained.model import LanguageModel

CANDIDATES = 10  # tokens whose probabilities are shown


def percent(share: float) -> str:
    """A share in percent, with two digits at least."""
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{100 * share:.1f} %"


def picture(title: str, explanation: str, css: str, content: str) -> str:
    """A picture below its heading, and what explains it (HTML)."""
    return f'<div class="ex"><h3>{title}</h3><p>{explanation}</p><div class="{css}">{content}</div></div>'


def scale(low: str, colours: str, high: str) -> str:
    """A scale of colours between two numbers (HTML)."""
    gradient = f'<span class="ex-scale" style="background:linear-gradient(90deg,{colours})"></span>'
    return f'<span class="ex-range">{low}{gradient}{high}</span>'


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
