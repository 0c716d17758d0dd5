"""Sizes, colours and fonts of all figures.

A figure is as wide as a README on GitHub, with two pixels in the file for each on the page. Its background is white, as
no colour of text is legible on both light and dark pages.
"""

from typing import Any

WIDTH = 8.3  # of a figure, in inches; an inch is 100 pixels of the page
DPI = 200
HEIGHT, HEIGHT_OF_ALL = 3.0, 3.6  # of a panel beside another one, and of one that takes all of the width
SMALL, TINY = 8.5, 7.0  # sizes of text; labels of axes have 10 points
# Colours that can be told apart with colour-blindness (most are Okabe's and Ito's), and dark enough for lines on white.
BLUE, VERMILLION, GREEN, PURPLE, AMBER, SKY = "#0072b2", "#d55e00", "#009e73", "#aa3377", "#e69f00", "#56b4e9"
INDIGO, GREY, INK, GRID, WHITE = "#332288", "#777777", "#24292f", "#e3e6ea", "#ffffff"
CYCLE = (BLUE, VERMILLION, GREEN, PURPLE, AMBER, SKY, GREY, INDIGO)
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
