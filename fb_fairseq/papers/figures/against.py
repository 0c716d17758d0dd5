"""Draw the results of a recipe against one of their fields: ``against OUT FIELD METRIC…``.

``python -m fb_fairseq.papers.figures.against OUT layers test_bits_per_token`` draws v3 Figures 4, 7 and 9.
OUT/FIELD.png has one panel per metric of OUT/results.json and one line per model: the mean over seeds, and the range
from the lowest to the highest value; a dotted line for runs without the field. The value of the field at the end of
a model's name is left out: lr0.001 and lr0.002 are one line.
"""

import os
from collections.abc import Sequence
from functools import partial
from statistics import mean

from fb_fairseq.drawing.figure import Panel, draw_figure
from fb_fairseq.drawing.marks import draw_points, draw_reference, explain_range
from fb_fairseq.drawing.models import styles
from fb_fairseq.errors import UserError
from fb_fairseq.papers.figures.names import labels, value_of
from fb_fairseq.papers.results.program import run_main
from fb_fairseq.papers.results.runs import Group, grouped, read_runs
from fb_fairseq.papers.results.words import HEADINGS

FIELD_LABELS = {
    "lr": "learning rate",
    "layers": "number of layers",
    "span": "attention span (steps)",
    "attention_span": "attention span (steps)",
}


def lines(groups: Sequence[Group], field: str, metric: str) -> dict[str, list[Group]]:
    """The groups that have the metric by the name of their line, in the order of the field."""
    found: dict[str, list[Group]] = {}
    for name, group in zip(labels(groups, field), groups):
        if group.values(metric):
            found.setdefault(name, []).append(group)
    for line in found.values():
        line.sort(key=lambda group: value_of(group, field) or 0)
    return found


def draw(axes, groups: Sequence[Group], field: str, metric: str) -> None:
    """Draw one metric's panel."""
    drawn = lines(groups, field, metric)
    style = styles(drawn)
    ticks = set()
    for name, line in drawn.items():
        points = [(value, group.values(metric)) for group in line if (value := value_of(group, field)) is not None]
        if points:
            draw_points(axes, *zip(*points), name, *style[name])
            ticks |= {value for value, _ in points}
        for group in line:
            if value_of(group, field) is None:
                label = f"{name}, {field} not given" if points else name
                draw_reference(axes, mean(group.values(metric)), label, style[name][0])
    explain_range(axes, [group.values(metric) for line in drawn.values() for group in line])
    if field == "lr":
        axes.set_xscale("log")
    elif "span" in field:
        axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(ticks), [f"{tick:g}" for tick in sorted(ticks)])
    axes.minorticks_off()
    axes.set_xlabel(FIELD_LABELS.get(field, field.replace("_", " ")))
    quantity, comma, unit = HEADINGS.get(metric, metric).partition(", ")
    axes.set_ylabel(f"{quantity} ({unit})" if comma else quantity)
    if unit.startswith("%"):
        axes.set_ylim(0, 102)


def panels(groups: Sequence[Group], field: str, metrics: Sequence[str]) -> list[Panel]:
    """A panel for each metric that results with the field have."""
    having = [group for group in groups if value_of(group, field) is not None]
    drawn = [metric for metric in metrics if any(group.values(metric) for group in having)]
    return [Panel(partial(draw, groups=groups, field=field, metric=metric)) for metric in drawn]


def main(out: str, field: str, metrics: list[str]) -> None:
    """Write OUT/FIELD.png, with the metrics that the results have."""
    drawn = panels(grouped(read_runs(out)), field, metrics)
    if not drawn:
        raise UserError(f"{out}: no results have {field} and {' or '.join(metrics)}; name another field or metric")
    draw_figure(os.path.join(out, f"{field}.png"), drawn)
    print(f"{out}/{field}.png")


if __name__ == "__main__":
    run_main(main)
