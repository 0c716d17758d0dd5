"""Figures of little data, each kind at least once, and how they look, in words and numbers."""

import argparse
import json
import math
import runpy
from functools import partial
from typing import Any
from unittest import mock

from fb_fairseq.commands.label_accuracy import PositionCounts
from fb_fairseq.commands.plot import panels
from fb_fairseq.commands.plot.command import make_panels
from fb_fairseq.commands.plot.context import ContextLosses
from fb_fairseq.commands.plot.kinds import KINDS
from fb_fairseq.commands.plot.measures import AttentionMap, Shares
from fb_fairseq.drawing.figure import Panel, build_figure
from fb_fairseq.drawing.style import STYLE
from fb_fairseq.errors import flag
from fb_fairseq.papers.figures import against, memory_composition, persistent_memory, state_tracking
from fb_fairseq.papers.results.runs import grouped
from fb_fairseq.papers.rl.log import draw_rewards
from tests.conftest import REPOSITORY

draw_speed = runpy.run_path(str(REPOSITORY / "examples/benchmark/growth.py"))["draw_speed"]

TRAINING = [(1, 90.0), (2, 40.0), (10, 8.0), (20, 4.0)]
VALIDATION = [(10, 9.0), (20, 5.0)]
BOTH = {"train": TRAINING, "train_inner": TRAINING, "valid": VALIDATION}
NAN = math.nan
RUN = {"recipe": "r", "model": "feedback", "layers": 2, "lr": 0.1, "seed": 1, "accuracy": 99.0, "bpb": 1.5}
RUNS = [
    RUN,
    {**RUN, "layers": 4, "accuracy": 97.0},
    {**RUN, "layers": 4, "seed": 2, "accuracy": 95.0},
    {**RUN, "model": "transformer", "layers": 2, "accuracy": 60.0},
    {**RUN, "model": "lstm", "accuracy": 80.0, "layers": None},
]
RATES = [{**RUN, "lr": rate, "bpb": 1 + rate} for rate in (0.1, 0.01)]
SPANS = [{**RUN, "span": span, "bpb": 4 / span} for span in (2, 8)]
TRACKED = {
    "task": "word_problem",
    "group": "A5",
    "longest": 4,
    "sizes": [1, 2, 4, 8],
    "accuracy": [1.0, 1.0, 0.5, 0.25],
}
PAIRS = {"task": "pairs", "longest": 2, "sizes": [1, 2, 4], "accuracy": [1.0, 0.75, 0.5]}
COMPOSITIONS = {("layer1",): [1.0, 2.0], ("weighted",): [0.5], ("transformer",): [3.0], ("layer2", "shared"): [1.0]}
VARIANTS = {"N0": [3.0], "N8": [2.0, 2.5], "N32": [1.5], "attn-split": [2.25], "relative_transformer_lm": [1.5, 1.75]}
SPEEDS = [
    {
        "setting": {"varies": "span", "span": span},
        "tokens_per_second": {"cpp": 90.0 / span, "reference": 50.0 / span, "transformer": 70.0},
    }
    for span in (64, 32)
]
POSITIONS = PositionCounts([0, *[4] * 249], [0, *[n % 5 for n in range(249)]])


def panels_of(option: str, found: Any) -> list[Panel]:
    """The panels of an option of ``fb-fairseq plot`` with two paths. ``found``: what is read of each."""
    kind = KINDS[option]._replace(read=lambda path: found)
    given = {**dict.fromkeys(KINDS, []), option: [("a", "a.pt"), ("b", "b.pt")]}
    with mock.patch.dict(KINDS, {option: kind}):
        return make_panels(argparse.Namespace(curves=[], **given))[0]


def cases() -> dict[str, list[Panel]]:
    """The panels of each figure, by a name."""
    single: dict[str, partial] = {
        "one run": partial(panels.draw_curves, found={"": [BOTH]}, metric="ppl"),
        "fine-tuning, and another run": partial(
            panels.draw_curves, found={"a": [BOTH, {"valid": VALIDATION}], "b": [{"train": TRAINING}]}, metric="bpb"
        ),
        "many runs": partial(panels.draw_curves, found={name: [BOTH] for name in "abcde"}, metric="loss"),
        "accuracy over hours": partial(
            panels.draw_curves, found={"a": [{"valid": VALIDATION}]}, metric="accuracy", x="hours"
        ),
        "a metric without a label": partial(panels.draw_curves, found={"a": [{"valid": TRAINING}]}, metric="spans"),
        "layer weights": partial(panels.draw_layer_weights, found={"a": [0.5, 0.3, 0.2], "b": [0.1, 0.2, 0.7]}),
        "layer weights of different depths": partial(
            panels.draw_layer_weights, found={"a": [0.5, 0.5], "b": [0.2, 0.3, 0.5]}
        ),
        "spans": partial(panels.draw_spans, found={"a": [[8.0, 9.0], [3.0, 4.0]], "b": [[5.0], [6.0], [7.0]]}),
        "layer weights over training": partial(
            panels.draw_layer_weights_over_training, found=[[(2, 0.5), (1, 0.25)], [(1, 0.75), (2, 0.5)]]
        ),
        "persistent use": partial(panels.draw_persistent_use, found=[[0.5, 0.75, 0.9, 1.0], [0.9, 0.95, 0.97, 1.0]]),
        "context of bytes": partial(
            panels.draw_context_losses,
            found={
                "a": ContextLosses([(1, 1), (2, 2), (3, 4)], [4.0, 3.0, 2.0], "byte"),
                "b": ContextLosses([(1, 1), (2, 2), (3, 4)], [5.0, 2.5, 1.0], "byte"),
            },
        ),
        "context of tokens": partial(
            panels.draw_context_losses, found={"a": ContextLosses([(1, 1), (2, 8)], [40.0, 20.0], "token")}
        ),
        "accuracy by position": partial(panels.draw_position_accuracy, found={"a": POSITIONS}),
        "shares": partial(panels.draw_shares, found=Shares([[25.0, 75.0], [60.0, 40.0]], ["1", "2–4"], "distance")),
        "shares, short names": partial(panels.draw_shares, found=Shares([[25.0, 75.0]], ["1", "10"], "distance")),
        "shares, 160 cells": partial(panels.draw_shares, found=Shares([[0.625] * 160], ["1"] * 160, "distance")),
        "shares, more": partial(panels.draw_shares, found=Shares([[0.5] * 161], ["1"] * 161, "distance")),
        "attention map": partial(
            panels.draw_attention_map, found=AttentionMap([[1.0, NAN], [0.25, 0.75]], ["</s>", "x", "$y"], "layer 1")
        ),
        "speed": partial(draw_speed, results=SPEEDS, size="span"),
        "accuracy against layers": partial(against.draw, groups=grouped(RUNS), field="layers", metric="accuracy"),
        "bits against rates": partial(against.draw, groups=grouped(RATES), field="lr", metric="bpb"),
        "bits against spans": partial(against.draw, groups=grouped(SPANS), field="span", metric="bpb"),
        "compositions": partial(memory_composition.draw_compositions, values=COMPOSITIONS, task="PTB", label="bits"),
        "numbers of persistent vectors": partial(persistent_memory.draw_numbers, best=VARIANTS),
        "variants": partial(persistent_memory.draw_variants, best=VARIANTS, same_size="N8"),
        "word problem": partial(
            state_tracking.draw_accuracy,
            settings={"LSTM": [TRACKED], "Feedback": [TRACKED, {**TRACKED, "accuracy": [1.0] * 4}]},
        ),
        "pairs": partial(state_tracking.draw_accuracy, settings={"LSTM": [PAIRS]}),
        "rewards": partial(
            draw_rewards,
            curves={
                "lstm": [[(10**6, 1.0), (2 * 10**6, 2.0)], [(10**6, 3.0), (2 * 10**6, 5.0)]],
                "_mine": [[(1, 1.0)]],
            },
        ),
    }
    lines = partial(panels.draw_context_losses, found={"a": ContextLosses([(1, 1), (2, 2)], [2.0, 1.0], "byte")})
    longer = partial(
        panels.draw_context_losses, found={"name " * 6: ContextLosses([(1, 1), (2, 2)], [2.0, 1.0], "byte")}
    )
    many = partial(panels.draw_curves, found={f"run{i:02}": [{"valid": VALIDATION}] for i in range(14)}, metric="bpb")
    bars = single["layer weights"]
    shares = single["shares"]
    found = {name: draw.keywords.get("found") for name, draw in single.items()}
    options = {
        "layer_weights_over_training": found["layer weights over training"],
        "layer_weights": found["layer weights"]["a"],
        "spans": found["spans"]["a"],
        "attention": found["shares"],
        "attention_map": found["attention map"],
        "persistent_shares": found["shares"],
        "persistent_use": found["persistent use"],
        "context_perplexity": found["context of tokens"]["a"],
        "position_accuracy": POSITIONS,
    }
    return {
        **{name: [Panel(draw)] for name, draw in single.items()},
        **{f"{flag(option)} of two": panels_of(option, read) for option, read in options.items()},
        "figure: one legend for all": [Panel(lines, title="left"), Panel(lines, title="right")],
        "figure: a legend for each": [Panel(lines, title="left"), Panel(longer), Panel(bars, wide=True, title="bars")],
        "figure: sizes": [Panel(shares, size=(10.0, 5.0)), Panel(lines, size=(4.0, 2.0)), Panel(shares)],
        "figure: a long name alone": [Panel(longer, title="alone")],
        "figure: a long legend alone": [Panel(many)],
        "figure: a map": [Panel(single["attention map"], size=panels.map_size(AttentionMap([], ["x"] * 31, "")))],
    }


def numbers(values: Any) -> Any:
    """Numbers, or lists or arrays of these, rounded to five digits; NaN and infinities as text."""
    values = values.tolist() if hasattr(values, "tolist") else values
    if isinstance(values, (list, tuple)):
        return [numbers(value) for value in values]
    if isinstance(values, str) or values is None:
        return values
    return float(f"{values:.5g}") if math.isfinite(values) else str(float(values))


def few(values: list) -> list:
    """The values; of many, the first, the last and their number."""
    return [values[0], values[-1], len(values)] if len(values) > 20 else values


def color(value: Any) -> str:
    """A colour, or the first of several, as #rrggbbaa."""
    from matplotlib.colors import to_hex, to_rgba_array

    rgba = to_rgba_array(value)
    return to_hex(rgba[0], keep_alpha=True) if len(rgba) else "none"


def ticks(axis: Any) -> list:
    """Places, names, angles and sizes of the major ticks of an axis."""
    names = [[t.get_text(), numbers(t.get_rotation()), numbers(t.get_fontsize())] for t in axis.get_ticklabels()]
    return few([[numbers(place), *name] for place, name in zip(axis.get_majorticklocs(), names)])


def described_axes(axes: Any) -> dict[str, Any]:
    """All that is drawn on matplotlib axes."""
    legend = axes.get_legend()
    fixed = [type(axis.get_major_locator()).__name__ == "FixedLocator" for axis in (axes.xaxis, axes.yaxis)]
    return {
        "title": axes.get_title(),
        "labels": [axes.get_xlabel(), axes.get_ylabel()],
        "limits": [numbers(axes.get_xlim()), numbers(axes.get_ylim())],
        "scales": [axes.get_xscale(), axes.get_yscale()],
        "bases": [numbers(getattr(axis.get_transform(), "base", None)) for axis in (axes.xaxis, axes.yaxis)],
        "ticks": [ticks(axis) if given else "automatic" for axis, given in zip((axes.xaxis, axes.yaxis), fixed)],
        "formats": [
            [type(each).__name__, getattr(each, "fmt", None)]
            for axis in (axes.xaxis, axes.yaxis)
            for each in (axis.get_major_formatter(), axis.get_minor_formatter())
        ],
        "minor ticks": [type(axis.get_minor_locator()).__name__ for axis in (axes.xaxis, axes.yaxis)],
        "grid": [bool(line.get_visible()) for line in (*axes.get_xgridlines()[:1], *axes.get_ygridlines()[:1])],
        "spines": [bool(spine.get_visible()) for spine in axes.spines.values()],
        "aspect": str(axes.get_aspect()),
        "lines": [
            [
                line.get_label(),
                numbers(list(line.get_xdata())),
                numbers(list(line.get_ydata())),
                color(line.get_color()),
                [line.get_linestyle(), numbers(line.get_linewidth())],
                [str(line.get_marker()), numbers(line.get_markersize())],
                [line.get_alpha(), numbers(line.get_zorder())],
            ]
            for line in axes.lines
        ],
        "groups": [
            [
                type(group).__name__.removeprefix("FillBetween"),  # (matplotlib 3.10 and later)
                group.get_label(),
                numbers(group.get_offsets()),
                [numbers(path.vertices) for path in group.get_paths()] if "Poly" in type(group).__name__ else [],
                [numbers(segment) for segment in group.get_segments()] if hasattr(group, "get_segments") else [],
                [color(group.get_facecolor()), color(group.get_edgecolor()), numbers(group.get_linewidths())],
            ]
            for group in axes.collections
        ],
        "bars": [
            [bar.get_label(), numbers([*bar.get_xy(), bar.get_width(), bar.get_height()]), color(bar.get_facecolor())]
            for bar in axes.patches
        ],
        "images": [
            [
                [few(row) for row in numbers(image.get_array().filled(NAN))],
                [type(image.norm).__name__, numbers(image.norm.vmin), numbers(image.norm.vmax), image.cmap.name],
                numbers(getattr(image.norm, "gamma", None)),
                image.origin,
            ]
            for image in axes.images
        ],
        "texts": few(
            [
                [
                    text.get_text(),
                    numbers(text.get_position()),
                    color(text.get_color()),
                    numbers(text.get_fontsize()),
                    [text.get_ha(), text.get_va()],
                ]
                for text in axes.texts
            ],
        ),
        "legend": legend and described_legend(legend),
    }


def described_legend(legend: Any) -> dict[str, Any]:
    """The names in a legend, in how many columns, and where it stands."""
    return {
        "names": [text.get_text() for text in legend.get_texts()],
        "columns": legend._ncols,
        "title": legend.get_title().get_text(),
        "location": str(legend._loc),
        "anchor": numbers(legend.get_bbox_to_anchor()._bbox.get_points()[0]),
        "alignment": legend.get_alignment(),
        "distance": numbers(legend.borderaxespad),
    }


def described(figure: Any) -> dict[str, Any]:
    """All that a matplotlib figure holds."""
    return {
        "size": numbers(figure.get_size_inches()),
        "title": figure.get_suptitle(),
        "legends": [described_legend(legend) for legend in figure.legends],
        "places": [
            [axes.get_subplotspec().rowspan.start, len(axes.get_subplotspec().colspan)]
            for axes in figure.axes
            if axes.get_subplotspec()
        ],
        "heights": numbers(figure.axes[0].get_gridspec().get_height_ratios()),
        "axes": [described_axes(axes) for axes in figure.axes],
    }


def descriptions() -> dict[str, str]:
    """How the figures of ``cases`` look in the project's style: a line of JSON for each of their properties."""
    from matplotlib import style

    texts = {}
    with style.context(["default", STYLE]):
        for name, panels in cases().items():
            found = described(build_figure(panels, "all $ together" if name.startswith("figure") else ""))
            lines = [json.dumps({key: value}, ensure_ascii=False) for key, value in found.items() if key != "axes"]
            for axes in found["axes"]:
                lines += [json.dumps({key: value}, ensure_ascii=False) for key, value in axes.items()]
            texts[name] = "\n".join(lines)
    return texts
