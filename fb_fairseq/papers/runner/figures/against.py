"""Draw the results of a recipe against one of their fields: ``against OUT FIELD METRIC…``.

``python -m fb_fairseq.papers.runner.figures.against OUT layers test_bits_per_token`` draws v3 Figures 4, 7 and 9.
OUT/FIELD.png has one panel per metric of OUT/results.json and one line per model: the mean over seeds, and the range
from the lowest to the highest value. The value of the field at the end of a model's name is left out: lr0.001 and
lr0.002 are one line.
"""

import os
from collections.abc import Sequence
from functools import partial

from fb_fairseq.drawing import Panel, colors, draw_figure, draw_points, model_name
from fb_fairseq.errors import UserError
from fb_fairseq.papers.runner.figures.program import run_main
from fb_fairseq.papers.runner.results import HEADINGS, Group, grouped, read_runs

OTHER_FIELDS = {"recipe", "small", "model", "finetuned"}
FIELD_LABELS = {"lr": "learning rate", "layers": "number of layers"}
METRIC_LABELS = {"dev_nll": "dev nll, bits per token"}  # where a table's heading is too short


def value_of(group: Group, field: str) -> float | None:
    """The value of a field in a group's results; None if they have none."""
    value = group.identity.get(field, group.runs[0].get(field))
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def line_name(group: Group, field: str) -> str:
    """What a group's line is called: its model and whatever else sets it apart, but for the field."""
    model, value = str(group.identity["model"]), value_of(group, field)
    for end in (f"-{field}{value:g}", f"-{field}-{value:g}"):
        model = model[: -len(end)] if model.endswith(end) else model
    words = [model_name(model), *(["fine-tuned"] if group.identity.get("finetuned") else [])]
    return ", ".join(words + [str(v) for name, v in group.identity.items() if name not in {*OTHER_FIELDS, field}])


def lines(groups: list[Group], field: str, metric: str) -> dict[str, list[Group]]:
    """The groups that have the field and the metric, by the name of their line, in the order of the field."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        if value_of(group, field) is not None and group.values(metric):
            found.setdefault(line_name(group, field), []).append(group)
    for line in found.values():
        line.sort(key=lambda group: value_of(group, field))
    return found


def draw(axes, groups: list[Group], field: str, metric: str) -> None:
    """Draw one metric's panel."""
    drawn = lines(groups, field, metric)
    color, ticks = colors(drawn), set()
    for name, line in drawn.items():
        values = [value_of(group, field) for group in line]
        draw_points(axes, values, [group.values(metric) for group in line], name, color[name])
        ticks |= set(values)
    if field == "lr":
        axes.set_xscale("log")
    axes.set_xticks(sorted(ticks), [f"{tick:g}" for tick in sorted(ticks)])
    axes.minorticks_off()
    axes.set_xlabel(FIELD_LABELS.get(field, field.replace("_", " ")))
    quantity, comma, unit = METRIC_LABELS.get(metric, HEADINGS.get(metric, metric)).partition(", ")
    axes.set_ylabel(f"{quantity} ({unit})" if comma else quantity)


def panels(groups: list[Group], field: str, metrics: Sequence[str]) -> list[Panel]:
    """A panel for each metric that the results have."""
    drawn = [metric for metric in metrics if lines(groups, field, metric)]
    return [Panel(partial(draw, groups=groups, field=field, metric=metric)) for metric in drawn]


def main(out: str, field: str, *metrics: str) -> None:
    """Write OUT/FIELD.png, with the metrics that the results have."""
    drawn = panels(grouped(read_runs(out)), field, metrics)
    if not drawn:
        raise UserError(f"{out}: no results have {field} and {' or '.join(metrics)}; name another metric")
    draw_figure(os.path.join(out, f"{field}.png"), drawn)
    print(f"{out}/{field}.png")


if __name__ == "__main__":
    run_main(main)
