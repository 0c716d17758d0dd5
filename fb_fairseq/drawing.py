"""Helpers for figures: the mean and range of several runs, and saving."""

import os
from statistics import mean
from typing import List, Tuple

from fb_fairseq.errors import UserError
from fb_fairseq.files import atomic_write, check_output_file

DPI = 120  # of saved figures


def draw_band(axes, xs: List[float], values: List[List[float]], label: str, color: str) -> None:
    """Draw a line through the mean at each x, on a band from the lowest to the highest value.

    Args:
        axes: matplotlib axes.
        xs: positions on the x axis.
        values: for each x, the values of all runs.
        label: name of the line in the legend.
        color: matplotlib colour of line and band.
    """
    axes.plot(xs, list(map(mean, values)), label=label, color=color)
    axes.fill_between(xs, list(map(min, values)), list(map(max, values)), color=color, alpha=0.2, linewidth=0)


def mean_and_range(values: List[List[float]]) -> Tuple[List[float], List[List[float]]]:
    """Means of groups of values, and error bars that reach from the lowest to the highest value of each group.

    Returns:
        The mean of each group; and matplotlib's ``yerr``: the distances from the means down to the lowest values, and
        those up to the highest.
    """
    means = list(map(mean, values))
    down = [m - min(group) for m, group in zip(means, values)]
    up = [max(group) - m for m, group in zip(means, values)]
    return means, [down, up]


def plain(text: str) -> str:
    """The text for matplotlib, which otherwise reads $…$ as mathematics."""
    return text.replace("$", r"\$")


def check_figure(option: str, path: str) -> None:
    """Check that a figure can be written to a file, before the work of drawing it.

    Raises:
        UserError: see ``check_output_file``; or matplotlib does not know the file's extension.
    """
    from matplotlib.backend_bases import FigureCanvasBase

    check_output_file(option, path)
    known = FigureCanvasBase.get_supported_filetypes()
    if _extension(path) not in known:
        raise UserError(f"{option} {path}: give a name that ends with .png, .pdf or .svg")


def save_figure(figure, path: str) -> None:
    """Save a matplotlib figure without wasted margins, and close it.

    Raises:
        OSError: the file cannot be written.
    """
    from matplotlib import pyplot

    figure.tight_layout()
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=DPI, format=_extension(path))
    pyplot.close(figure)


def _extension(path: str) -> str:
    return os.path.splitext(path)[1][1:].lower()
