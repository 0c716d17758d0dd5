"""Figures of panels: where panels and legends stand, and the file that they are written to."""

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fb_fairseq.drawing.style import DPI, HEIGHT, HEIGHT_OF_ALL, STYLE, WIDTH
from fb_fairseq.errors import UserError
from fb_fairseq.files import WRITER, atomic_write, check_output_file

COLUMNS = 2  # panels beside each other
LEGEND_LINE, LEGEND_LETTER, LEGEND_MARK = 0.2, 0.078, 0.5  # inches: a line of a legend, a letter, a line's sample
SHORT_LABEL, FEW_LABELS = 28, 14  # a legend that fits beside a panel


class Panel(NamedTuple):
    """A panel of a figure.

    Attributes:
        draw: draws it on the matplotlib axes that it is given. The lines that have labels are in the legend.
        wide: whether it takes all of the figure's width; else two stand side by side; the last
            one is wide if it has no neighbour.
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

    figure = Figure(layout="constrained")
    rows = _rows(panels)
    grid = figure.add_gridspec(len(rows), COLUMNS)
    drawn = []
    for r, row in enumerate(rows):
        places = [grid[r, c] for c in range(COLUMNS)] if len(row) > 1 else [grid[r, :]]
        drawn.append([_draw_panel(figure.add_subplot(place), panel) for place, panel in zip(places, row)])
    width = max(WIDTH, *(panel.size[0] for panel in panels))
    above_all, above_rows = _place_legends(figure, drawn, width)
    heights = [
        max(panel.size[1] or (HEIGHT_OF_ALL if len(row) == 1 else HEIGHT) for panel in row) + above
        for row, above in zip(rows, above_rows)
    ]
    grid.set_height_ratios(heights)
    tall = sum(heights) + above_all + (0.3 if title else 0.0)
    figure.set_size_inches(width, round(tall * DPI) / DPI + 1e-6)  # whole pixels, which matplotlib rounds down
    if title:
        figure.suptitle(plain_text(title))
    return figure


def _rows(panels: Sequence[Panel]) -> list[list[Panel]]:
    """The panels of each row: ``COLUMNS`` of them, or a wide one."""
    rows: list[list[Panel]] = []
    for panel in panels:
        if panel.wide or not rows or len(rows[-1]) == COLUMNS or rows[-1][0].wide:
            rows.append([])
        rows[-1].append(panel)
    return rows


def _draw_panel(axes, panel: Panel):
    """Draw a panel on matplotlib axes. Returns the axes."""
    panel.draw(axes)
    axes.set_title(", ".join(filter(None, [panel.title, axes.get_title()])))
    if axes.images:
        axes.grid(False)
        axes.spines[:].set_visible(True)
    elif axes.patches:
        axes.grid(False, axis="x")  # between bars
    return axes


def _place_legends(figure, drawn: list[list], width: float) -> tuple[float, list[float]]:
    """Place one legend above all panels, if they have the same names, or those of the panels.

    Args:
        figure: of matplotlib.
        drawn: the axes of the panels of each row.
        width: of the figure, in inches.

    Returns:
        The inches that they take above all panels, and above each row.
    """
    entries = [axes.get_legend_handles_labels() for row in drawn for axes in row]
    names = entries[0][1]
    if len(entries) > 1 and names and all(others == names for _, others in entries):
        columns, above_all = _legend_columns(names, width)
        figure.legend(*entries[0], loc="outside upper left", ncol=columns)
        return above_all, [0.0] * len(drawn)
    return 0.0, [max(_place_legend(axes, len(row) == 1, width) for axes in row) for row in drawn]


def _place_legend(axes, is_alone: bool, width: float) -> float:
    """Place the legend of a panel beside it, if it is alone in its row and the legend is short, or above it, where the
    panel's title becomes the legend's. Returns the inches that it takes above.
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


def plain_text(text: str) -> str:
    """The text for matplotlib, which otherwise reads $…$ as mathematics, and leaves names that begin with _ out of
    legends.
    """
    shown = text.replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def check_figure(option: str, path: str, command: str, overwrite: bool = False) -> None:
    """Check that a figure of a command can be written to a file, before the work of drawing it."""
    import matplotlib  # noqa: F401  missing now rather than after the work

    check_output_file(option, path, command, overwrite)
    if _extension(path) not in ("png", "pdf", "svg"):
        raise UserError(f"{option} {path}: give a name that ends with .png, .pdf or .svg")


def _extension(path: str) -> str:
    return os.path.splitext(path)[1][1:].lower()
