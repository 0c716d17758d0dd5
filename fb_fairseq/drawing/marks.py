"""Lines, points, bands and words on matplotlib axes."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean
from typing import Any

from fb_fairseq.drawing.models import colors
from fb_fairseq.drawing.style import GREY, INK, SMALL, WHITE

Points = tuple[Sequence[float], Sequence[float]]  # of a line: x and y
MARKERS = "os^Dv"
RANGE = "lowest to highest seed"  # in legends
DARK_CELL = 0.6  # cells below this part of the scale are dark


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


def draw_band(
    axes, xs: Sequence[float], values: Sequence[Sequence[float]], label: str, color: str, line: str = "-"
) -> None:
    """Draw a line through the mean at each x, on a band from the lowest to the highest value.

    Args:
        axes: matplotlib axes.
        xs: positions on the x axis.
        values: for each x, the values of all runs.
        label: name of the line in the legend.
        color: of line and band.
        line: its kind, in matplotlib.
    """
    # The first line lies on the later ones, where matplotlib would draw it below; all of them above the bands, at 1.
    above = 3 - len(axes.lines) / 100
    axes.plot(xs, list(map(mean, values)), label=label, color=color, linestyle=line, zorder=above)
    axes.fill_between(xs, list(map(min, values)), list(map(max, values)), color=color, alpha=0.2, linewidth=0)


def draw_points(
    axes, xs: Sequence[float], values: Sequence[Sequence[float]], label: str, color: str, line: str = "-"
) -> None:
    """Draw the mean at each x as a point, with a bar from the lowest to the highest value; see ``draw_band``."""
    means, around = mean_and_range(values)
    marker = MARKERS[len(axes.containers) % len(MARKERS)]
    axes.errorbar(xs, means, around, label=label, color=color, marker=marker, linestyle=line)


def draw_names(axes, values: dict[str, list[float]], row_colors: Sequence[str]) -> None:
    """Draw a row for each name, from the top to the bottom: the mean as a point, and a bar as ``draw_points``.

    Args:
        axes: matplotlib axes.
        values: of all runs, by name.
        row_colors: of each row.
    """
    for row, (found, color) in enumerate(zip(values.values(), row_colors)):
        means, around = mean_and_range([found])
        axes.errorbar(means, [row], xerr=around, color=color, marker="o", markersize=6.5)
    explain_range(axes, values.values())
    axes.locator_params(axis="x", nbins=4)
    axes.set_yticks(range(len(values)), list(values))
    axes.set_ylim(len(values) - 0.5, -0.5)


def draw_curve(axes, curve: Sequence[tuple[float, float]], color: str, training: bool, continues: bool) -> None:
    """Draw a learning curve: of training thin, of validation with points; what continues another one is dashed."""
    axes.plot(*zip(*sorted(curve)), color=color, **_curve_style(training, continues))


def explain_curves(axes, name_colors: Mapping[str, str], kinds: Mapping[str, tuple[bool, bool]]) -> None:
    """Have the legend say whose colours these are, and what is thin, has points, or is dashed.

    Args:
        axes: matplotlib axes.
        name_colors: the colours, by name.
        kinds: arguments ``training`` and ``continues`` of ``draw_curve``, by label.
    """
    for name, color in name_colors.items():
        axes.plot([], [], color=color, label=name)
    of_kinds = GREY if len(name_colors) > 1 else next(iter(name_colors.values()))
    for name, kind in kinds.items():
        axes.plot([], [], color=of_kinds, label=name, **_curve_style(*kind))


def draw_reference(axes, y: float, label: str = "", color: str = GREY) -> None:
    """A dotted horizontal line to compare with."""
    axes.axhline(y, color=color, linestyle=":", label=label)


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
    return means, [
        [m - min(group) for m, group in zip(means, values)],
        [max(group) - m for m, group in zip(means, values)],
    ]


def _curve_style(training: bool, continues: bool) -> dict[str, Any]:
    style = {"alpha": 0.5, "linewidth": 1.0} if training else {"marker": "o"}
    return {**style, "linestyle": "dashed" if continues else "solid"}
