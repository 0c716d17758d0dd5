"""The style of all figures. Code that draws says what is on each panel; how it looks is said here.

    draw_figure("accuracy.png", [Panel(partial(draw_accuracy, runs=runs))])

A figure is as wide as a README on GitHub, with two pixels in the file for each on the page. Its background is white, as
no colour of text is legible on both light and dark pages. Legends stand outside of the data.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import mean
from typing import Any, NamedTuple

from fb_fairseq.errors import UserError
from fb_fairseq.files import WRITER, atomic_write, check_output_file

WIDTH = 8.3  # of a figure, in inches; an inch is 100 pixels of the page
DPI = 200
HEIGHT, HEIGHT_OF_ALL = 3.0, 3.6  # of a panel beside another one, and of one that takes all of the width
SMALL, TINY = 8.5, 7.0  # sizes of text; labels of axes have 10 points
Points = tuple[Sequence[float], Sequence[float]]  # of a line: x and y
COLUMNS = 2  # panels beside each other
LEGEND_LINE, LEGEND_LETTER, LEGEND_MARK = 0.2, 0.078, 0.5  # inches: a line of a legend, a letter, a line's sample
SHORT_LABEL, FEW_LABELS = 28, 14  # a legend that fits beside a panel

# Colours that can be told apart with colour-blindness (most are Okabe's and Ito's), and dark enough for lines on white.
BLUE, VERMILLION, GREEN, PURPLE, AMBER, SKY = "#0072b2", "#d55e00", "#009e73", "#aa3377", "#e69f00", "#56b4e9"
INDIGO, GREY, INK, GRID, WHITE = "#332288", "#777777", "#24292f", "#e3e6ea", "#ffffff"
CYCLE = (BLUE, VERMILLION, GREEN, PURPLE, AMBER, SKY, GREY, INDIGO)
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
# The words for models' names in programs, and for what recipes add to these (see ``papers/steps``).
MODEL_NAMES = {
    "feedback_transformer_lm": "Feedback Transformer",
    "feedback": "Feedback Transformer",
    "relative_transformer_lm": "Transformer",
    "transformer": "Transformer",
    "streaming_lstm_lm": "LSTM",
    "lstm": "LSTM",
    "all_attention_lm": "all-attention",
}
ENDS = {
    r"-lr([\d.]+(?:e-\d+)?)": r", learning rate \1",
    r"-(span|seed)(\d+)": r", \1 \2",
    r"(?<!e)-1(?!\d)": ", 1 layer",
    r"(?<!e)-(\d+)": r", \1 layers",
}
LIGHTEST = 0.55  # how much white is in the last of several colours of one model
MARKERS, LINES = "os^Dv", ("-", "--", "-.", ":")
ORDERED_COLORS = (0.0, 0.85)  # part of matplotlib's viridis that is dark enough for lines
RANGE = "lowest to highest seed"  # in legends
DARK_CELL = 0.6  # cells below this part of the scale are dark
STYLE: dict[str, Any] = {  # of matplotlib: arguments of ``pyplot.style.use``
    "font.size": 10,
    "axes.labelsize": 10,
    "axes.titlesize": 10.5,
    "figure.titlesize": 11.5,
    "legend.fontsize": 9.5,
    "legend.title_fontsize": 10.5,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), WHITE),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    "axes.prop_cycle": f"cycler(color={list(CYCLE)})",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "lines.linewidth": 1.8,
    "lines.markersize": 4.5,
    "errorbar.capsize": 3,
    "image.cmap": "viridis",
    **dict.fromkeys(("figure.constrained_layout.w_pad", "figure.constrained_layout.h_pad"), 0.1),
}


class Shade(str):
    """A colour, and its place among those of the same model."""

    place = 0


class Panel(NamedTuple):
    """A panel of a figure.

    Attributes:
        draw: draws it on the matplotlib axes that it is given. The lines that have labels are in the legend.
        wide: whether it takes all of the figure's width; else two stand side by side.
        size: width and height in inches; 0 for the usual ones.
        title: of the panel; empty for the one that ``draw`` gives it, if any.
    """

    draw: Callable
    wide: bool = False
    size: tuple[float, float] = (0, 0)
    title: str = ""


def draw_figure(path: str, panels: Sequence[Panel], title: str = "", command: str = "fb_fairseq") -> None:
    """Draw panels in rows, and write the figure to a file: .png, .pdf or .svg. ``command``: the one that writes it."""
    from matplotlib import style

    kind = _extension(path)
    mark = {WRITER: command} if kind == "png" else {"Keywords": f"{WRITER}: {command}"}
    with style.context(["default", STYLE]):
        figure = build_figure(panels, title)
        with atomic_write(path) as temporary:
            figure.savefig(temporary, format=kind, dpi=DPI, metadata=mark)


def build_figure(panels: Sequence[Panel], title: str = ""):
    """The matplotlib figure of ``draw_figure``, in whatever style is set."""
    from matplotlib.figure import Figure

    rows: list[list[Panel]] = []
    for panel in panels:
        if panel.wide or not rows or len(rows[-1]) == COLUMNS or rows[-1][0].wide:
            rows.append([])
        rows[-1].append(panel)
    figure = Figure(layout="constrained")
    grid = figure.add_gridspec(len(rows), COLUMNS)
    drawn = []
    for r, row in enumerate(rows):
        for c, panel in enumerate(row):
            axes = figure.add_subplot(grid[r, c] if len(row) > 1 else grid[r, :])
            panel.draw(axes)
            axes.set_title(", ".join(filter(None, [panel.title, axes.get_title()])))
            if axes.images:
                axes.grid(False)
                axes.spines[:].set_visible(True)
            elif axes.patches:
                axes.grid(False, axis="x")  # between bars
            drawn.append((r, axes))
    width = max(WIDTH, *(panel.size[0] for panel in panels))
    tall = 0.3 if title else 0.0
    legends = [0.0] * len(rows)
    entries = [axes.get_legend_handles_labels() for _, axes in drawn]
    names = entries[0][1]
    if len(drawn) > 1 and names and all(others == names for _, others in entries):
        columns, inches = _legend_columns(names, width)
        figure.legend(*entries[0], loc="outside upper left", ncol=columns)
        tall += inches
    else:
        for r, axes in drawn:
            legends[r] = max(legends[r], _place_legend(axes, len(rows[r]) == 1, width))
    heights = [
        max(panel.size[1] or (HEIGHT_OF_ALL if len(row) == 1 else HEIGHT) for panel in row) + above
        for row, above in zip(rows, legends)
    ]
    grid.set_height_ratios(heights)
    tall += sum(heights)
    figure.set_size_inches(width, round(tall * DPI) / DPI + 1e-6)  # whole pixels, which matplotlib rounds down
    if title:
        figure.suptitle(without_math(title))
    return figure


def _place_legend(axes, is_alone: bool, width: float) -> float:
    """Place the legend of a panel beside it, if it is alone in its row and the legend is short, or above it. Returns
    the inches that it takes above.
    """
    names = axes.get_legend_handles_labels()[1]
    if not names:
        return 0.0
    if is_alone and max(map(len, names)) <= SHORT_LABEL and len(names) <= FEW_LABELS:
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))
        return 0.0
    columns, inches = _legend_columns(names, width if is_alone else width / COLUMNS)
    title = axes.get_title()
    axes.set_title("")
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncol=columns,
        title=title or None,
        alignment="left",
        borderaxespad=0.2,
    )
    return inches + (LEGEND_LINE if title else 0)


def _legend_columns(labels: list[str], width: float) -> tuple[int, float]:
    """The number of a legend's columns in a panel or figure of this width, of which the axis takes some; and its height
    in inches.
    """
    columns = int((width - 0.7) / (max(map(len, labels)) * LEGEND_LETTER + LEGEND_MARK))
    columns = max(1, min(len(labels), columns))
    return columns, -(-len(labels) // columns) * LEGEND_LINE


def model_name(model: str) -> str:
    """The name of a model or run in figures and tables, for its name in programs: ``feedback_transformer_lm-2-seed3``
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


def colors(names: Iterable[str]) -> dict[str, Shade]:
    """The colours of lines by name, which begins with the model's: each model has its own in all figures.

    Of several lines of the same model, the later ones are lighter, and ``draw_band`` and ``draw_points`` draw them
    dashed or dotted. Other names get the colours that are left, and where these are not enough, lighter ones of them.
    """
    bases: dict[str, str] = {name: model_color(name) for name in dict.fromkeys(names)}
    free = [color for color in CYCLE if color not in bases.values()] or list(CYCLE)
    others = [name for name, color in bases.items() if not color]
    bases.update({name: free[i % len(free)] for i, name in enumerate(others)})
    alike = Counter(bases.values())
    places: Counter[str] = Counter()
    shades = {}
    for name, base in bases.items():
        shades[name] = Shade(tint(base, LIGHTEST * places[base] / max(1, alike[base] - 1)))
        shades[name].place = places[base]
        places[base] += 1
    return shades


def _line(color: str) -> str:
    return LINES[getattr(color, "place", 0) % len(LINES)]


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


def draw_lines(axes, lines: Mapping[str, Points], color: Mapping[str, Any] | None = None, **style: Any) -> None:
    """Draw a line for each name.

    Args:
        axes: matplotlib axes.
        lines: the points by the name in the legend.
        color: of each; None: those of ``colors``.
        style: of all of them: arguments of matplotlib's ``plot``.
    """
    color = color or colors(lines)
    for name, (xs, ys) in lines.items():
        axes.plot(xs, ys, label=name, color=color[name], **style)


def draw_band(axes, xs: Sequence[float], values: Sequence[Sequence[float]], label: str, color: str) -> None:
    """Draw a line through the mean at each x, on a band from the lowest to the highest value.

    Args:
        axes: matplotlib axes.
        xs: positions on the x axis.
        values: for each x, the values of all runs.
        label: name of the line in the legend.
        color: of line and band.
    """
    axes.plot(xs, list(map(mean, values)), label=label, color=color, linestyle=_line(color))
    axes.fill_between(xs, list(map(min, values)), list(map(max, values)), color=color, alpha=0.2, linewidth=0)


def draw_points(axes, xs: Sequence[float], values: Sequence[Sequence[float]], label: str, color: str) -> None:
    """Draw the mean at each x as a point, with a bar from the lowest to the highest value; see ``draw_band``."""
    means, around = mean_and_range(values)
    marker = MARKERS[len(axes.containers) % len(MARKERS)]
    axes.errorbar(xs, means, around, label=label, color=color, marker=marker, linestyle=_line(color))


def draw_names(axes, values: dict[str, list[float]], colors: Sequence[str]) -> None:
    """Draw a row for each name, from the top to the bottom: the mean as a point, and a bar as ``draw_points``."""
    for row, (found, color) in enumerate(zip(values.values(), colors)):
        means, around = mean_and_range([found])
        axes.errorbar(means, [row], xerr=around, color=color, marker="o", markersize=6.5)
    explain_range(axes, values.values())
    axes.locator_params(axis="x", nbins=4)
    axes.set_yticks(range(len(values)), list(values))
    axes.set_ylim(len(values) - 0.5, -0.5)


def draw_curve(axes, curve: Sequence[tuple[float, float]], color: str, training: bool, continues: bool) -> None:
    """Draw a learning curve: of training thin, of validation with points; what continues another one is dashed."""
    axes.plot(*zip(*sorted(curve)), color=color, **_curve_style(training, continues))


def _curve_style(training: bool, continues: bool) -> dict[str, Any]:
    style = {"alpha": 0.5, "linewidth": 1.0} if training else {"marker": "o"}
    return {**style, "linestyle": "dashed" if continues else "solid"}


def explain_curves(axes, colors: Mapping[str, str], kinds: Mapping[str, tuple[bool, bool]]) -> None:
    """Have the legend say whose colours these are, and what is thin, has points, or is dashed. ``kinds``: arguments
    ``training`` and ``continues`` of ``draw_curve``, by label.
    """
    for name, color in colors.items():
        axes.plot([], [], color=color, label=name)
    of_kinds = GREY if len(colors) > 1 else next(iter(colors.values()))
    for name, kind in kinds.items():
        axes.plot([], [], color=of_kinds, label=name, **_curve_style(*kind))


def draw_reference(axes, y: float, label: str = "", color: str = GREY) -> None:
    """A dotted horizontal line to compare with."""
    axes.axhline(y, color=color, linestyle=":", label=label)


def mark_x(axes, x: float, text: str) -> None:
    """A dashed vertical line with a text along its upper end."""
    axes.axvline(x, color=GREY, linestyle="--", linewidth=1)
    axes.annotate(
        text,
        (x, 0.96),
        xycoords=("data", "axes fraction"),
        xytext=(-2, 0),
        textcoords="offset points",
        ha="right",
        va="top",
        rotation=90,
        fontsize=SMALL,
        color=GREY,
    )


def explain_range(axes, groups: Iterable[Sequence]) -> None:
    """Have the legend say what the bars or bands around values are, if there are any.

    Args:
        axes: matplotlib axes, on which all values are drawn.
        groups: the values, or runs, that each point shows.
    """
    if max(map(len, groups)) == 1:
        return
    if axes.containers:
        axes.errorbar([], [], [[], []], color=GREY, linestyle="", label=RANGE)
    else:
        axes.fill_between([], [], [], color=GREY, alpha=0.2, linewidth=0, label=RANGE)


def write_out(axis) -> None:
    """Plain numbers on a logarithmic axis (``axes.xaxis``), also between powers of ten if it has few of these."""
    from matplotlib.ticker import LogFormatter

    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(1, 0.7)))


def write_cells(axes, rows: list[list[float]], top: float) -> None:
    """Write the numbers into the cells of a heat map whose colours end at ``top``."""
    for y, row in enumerate(rows):
        for x, value in enumerate(row):
            color = WHITE if value < DARK_CELL * top else INK
            axes.text(x, y, f"{value:.0f}", ha="center", va="center", color=color, fontsize=SMALL)


def mean_and_range(values: list[list[float]]) -> tuple[list[float], list[list[float]]]:
    """Means of groups of values, and error bars that reach from the lowest to the highest value of each group. Returns
    the mean of each group; and matplotlib's ``yerr``: the distances from the means down to the lowest values, and those
    up to the highest.
    """
    means = list(map(mean, values))
    down = [m - min(group) for m, group in zip(means, values)]
    up = [max(group) - m for m, group in zip(means, values)]
    return means, [down, up]


def without_math(text: str) -> str:
    """The text for matplotlib, which otherwise reads $…$ as mathematics."""
    return text.replace("$", r"\$")


def check_figure(option: str, path: str, command: str, overwrite: bool = False) -> None:
    """Check that a figure of a command can be written to a file, before the work of drawing it."""
    import matplotlib  # noqa: F401  missing now rather than after the work

    check_output_file(option, path, command, overwrite)
    if _extension(path) not in ("png", "pdf", "svg"):
        raise UserError(f"{option} {path}: give a name that ends with .png, .pdf or .svg")


def _extension(path: str) -> str:
    return os.path.splitext(path)[1][1:].lower()
