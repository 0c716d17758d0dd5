"""The text that a model has read, as HTML."""

import math
from html import escape

from fb_fairseq.commands.explore.parts import percent, picture, scale
from fb_fairseq.commands.explore.reading import Reading


def surprise(reading: Reading, step: int) -> str:
    """The text, each token on a background that says how much it has surprised the model."""
    vocabulary = reading.model.vocabulary
    unit, most = vocabulary.unit, math.log2(len(vocabulary))
    parts = []
    for t, (token, bits, shown) in enumerate(zip(reading.tokens, reading.bits, vocabulary.labels(reading.tokens))):
        told = "step 0: the start"
        if t:
            told = f"step {t} reads {vocabulary.label(token)}: surprise {bits:.2f} bits ({percent(2**-bits)})"
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
        "newest element acts first."
    )
    if found:
        explanation += (
            f" <b>{mistakes} of {len(found):,} are wrong</b> (orange, with the right one below). Blue: others than "
            "before. Click one to see that step."
        )
    return picture("Product so far", explanation, "ex-text", "".join(parts))
