"""The names and colours of models, the same in all figures."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from fb_fairseq.drawing.style import AMBER, BLUE, CYCLE, GREEN, GREY, INDIGO, INK, PURPLE, SKY, VERMILLION

# The colours of models, by what occurs in their names; the first counts.
MODEL_COLORS = {
    "all-att": PURPLE,
    "feedback": BLUE,
    "recurrent": INK,
    "deltanet": AMBER,
    "rwkv": SKY,
    "xlstm": GREY,
    "mamba": INDIGO,
    "lstm": GREEN,
    "transformer": VERMILLION,
}
# The names of models in figures and tables, by their names in programs.
MODEL_NAMES = {
    "feedback_transformer_lm": "Feedback Transformer",
    "feedback": "Feedback Transformer",
    "relative_transformer_lm": "Transformer",
    "transformer": "Transformer",
    "streaming_lstm_lm": "LSTM",
    "lstm": "LSTM",
    "all_attention_lm": "all-attention",
}
# What recipes add to these names (see ``papers/steps``), and how it is shown. ("1e-05" has no number of layers.)
ENDS = {
    r"-lr([\d.]+(?:e-\d+)?)": r", learning rate \1",
    r"-(span|seed)(\d+)": r", \1 \2",
    r"(?<!e)-1(?!\d)": ", 1 layer",
    r"(?<!e)-(\d+)": r", \1 layers",
}
LINES = ("-", "--", "-.", ":")  # kinds of lines in matplotlib: of a model's first line, its second one, …
LIGHTEST = 0.55  # how much white is in the last of several colours of one model
ORDERED_COLORS = (0.0, 0.85)  # part of matplotlib's viridis that is dark enough for lines


def model_name(model: str) -> str:
    """The name of a model or run in figures and tables, from its name in programs: ``feedback_transformer_lm-2-seed3``
    becomes "Feedback Transformer, 2 layers, seed 3".
    """
    name = re.match(r"\w*", model)[0]
    ends = model[len(name) :]
    if name not in MODEL_NAMES or not re.fullmatch(f"({'|'.join(ENDS)})*", ends):
        return model
    for pattern, words in ENDS.items():
        ends = re.sub(pattern, words, ends)
    return MODEL_NAMES[name] + ends


def model_color(name: str) -> str:
    """The colour of the model whose name or label this is; empty if it is none of ``MODEL_COLORS``."""
    text = name.lower().replace("_", "-")
    return next((color for word, color in MODEL_COLORS.items() if word in text), "")


def styles(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """The colour and the kind of a line (one of ``LINES``) by its name, which begins with the model's: each model has
    its own colour in all figures.

    Of several lines of the same model, the later ones are lighter, and dashed or dotted. Other names get the colours
    that are left, and where these are not enough, lighter ones of them.
    """
    bases: dict[str, str] = {name: model_color(name) for name in dict.fromkeys(names)}
    free = [color for color in CYCLE if color not in bases.values()] or list(CYCLE)
    others = [name for name, color in bases.items() if not color]
    bases.update({name: free[i % len(free)] for i, name in enumerate(others)})
    found = {}
    for name, base in bases.items():
        alike = [other for other in bases if bases[other] == base]
        place = alike.index(name)
        found[name] = tint(base, LIGHTEST * place / max(1, len(alike) - 1)), LINES[place % len(LINES)]
    return found


def colors(names: Iterable[str]) -> dict[str, str]:
    """The colours of lines by name; see ``styles``."""
    return {name: color for name, (color, _) in styles(names).items()}


def tint(color: str, white: float) -> str:
    """A colour with so much white in it, from 0 to 1."""
    parts = [int(color[at : at + 2], 16) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(part + white * (255 - part)):02x}" for part in parts)


def ordered_colors(names: Sequence[str]) -> dict[str, Any]:
    """The colours of lines that have an order, from dark to light, by name."""
    from matplotlib import colormaps

    first, last = ORDERED_COLORS
    step = (last - first) / max(1, len(names) - 1)
    return {name: colormaps["viridis"](first + step * i) for i, name in enumerate(names)}
