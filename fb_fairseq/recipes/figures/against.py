"""Draw the results of a recipe against one of their fields: ``against OUT FIELD METRIC…``.

``python -m fb_fairseq.recipes.figures.against OUT layers test_bits_per_token`` draws v3 Figures 4, 7 and 9.
OUT/FIELD.png has one panel per metric of OUT/results.json and one line per model: the mean over seeds, and the range
from the lowest to the highest value. The value of the field at the end of a model's name is left out: lr0.001 and
lr0.002 are one line.
"""

import os
import sys
from typing import Dict, List, Optional

import matplotlib

from fb_fairseq.drawing import mean_and_range, save_figure
from fb_fairseq.errors import UserError, single_line
from fb_fairseq.recipes.results import HEADINGS, Group, grouped, read_runs

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

OTHER_FIELDS = {"recipe", "small", "model", "finetuned"}


def value_of(group: Group, field: str) -> Optional[float]:
    """The value of a field in a group's results; None if they have none."""
    value = group.identity.get(field, group.runs[0].get(field))
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def line_name(group: Group, field: str) -> str:
    """What a group's line is called: its model and whatever else sets it apart, but for the field."""
    model, value = str(group.identity["model"]), value_of(group, field)
    for end in (f"-{field}{value:g}", f"-{field}-{value:g}"):
        model = model[: -len(end)] if model.endswith(end) else model
    words = [model, *(["fine-tuned"] if group.identity.get("finetuned") else [])]
    return ", ".join(words + [str(v) for name, v in group.identity.items() if name not in {*OTHER_FIELDS, field}])


def lines(groups: List[Group], field: str, metric: str) -> Dict[str, List[Group]]:
    """The groups that have the field and the metric, by the name of their line, in the order of the field."""
    found: Dict[str, List[Group]] = {}
    for group in groups:
        if value_of(group, field) is not None and group.values(metric):
            found.setdefault(line_name(group, field), []).append(group)
    for line in found.values():
        line.sort(key=lambda group: value_of(group, field))
    return found


def draw(axes, groups: List[Group], field: str, metric: str) -> None:
    """Draw one metric's panel."""
    ticks = set()
    for name, line in lines(groups, field, metric).items():
        values = [value_of(group, field) for group in line]
        means, errors = mean_and_range([group.values(metric) for group in line])
        axes.errorbar(values, means, errors, marker="o", capsize=3, label=name)
        ticks |= set(values)
    if field == "lr":
        axes.set_xscale("log")
    axes.set_xticks(sorted(ticks), [f"{tick:g}" for tick in sorted(ticks)])
    axes.minorticks_off()
    axes.set_xlabel({"lr": "learning rate"}.get(field, field.replace("_", " ")))
    axes.set_ylabel(HEADINGS.get(metric, metric))
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


def main(out: str, field: str, *metrics: str) -> None:
    """Write OUT/FIELD.png, with the metrics that the results have.

    Raises:
        UserError: there are none.
    """
    groups = grouped(read_runs(out))
    drawn = [metric for metric in metrics if lines(groups, field, metric)]
    if not drawn:
        raise UserError(f"{out}: no results have {field} and {' or '.join(metrics)}; name another metric")
    figure, all_axes = pyplot.subplots(1, len(drawn), figsize=(6 * len(drawn), 4), squeeze=False)
    for axes, metric in zip(all_axes[0], drawn):
        draw(axes, groups, field, metric)
    save_figure(figure, os.path.join(out, f"{field}.png"))
    print(f"{out}/{field}.png")


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit("give a folder, a field and metrics: against OUT FIELD METRIC…")
    try:
        main(*sys.argv[1:])
    except UserError as error:
        sys.exit(f"error: {single_line(str(error))}")
