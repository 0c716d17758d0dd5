"""Draw the results of a recipe against the number of layers: ``layers.py OUT METRIC…`` (v3 Figures 4, 7 and 9).

OUT/layers.png has one panel per metric of OUT/results.json and one line per model: the mean over seeds, and the range
from the lowest to the highest value.
"""

import os
import sys
from typing import Dict, List

import matplotlib

from fb_fairseq.drawing import mean_and_range, save_figure
from fb_fairseq.reproduction.compare.runs import Group, grouped, read_runs
from fb_fairseq.reproduction.compare.tables import HEADINGS

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

OTHER_FIELDS = {"recipe", "small", "layers", "model", "finetuned"}


def lines(groups: List[Group], metric: str) -> Dict[str, List[Group]]:
    """The groups that have the metric, by the name of their model, in the order of their layers."""
    found: Dict[str, List[Group]] = {}
    for group in groups:
        if group.identity.get("layers") and group.values(metric):
            words = [str(group.identity["model"]), *(["fine-tuned"] if group.identity.get("finetuned") else [])]
            words += [str(value) for name, value in group.identity.items() if name not in OTHER_FIELDS]
            found.setdefault(", ".join(words), []).append(group)
    for line in found.values():
        line.sort(key=lambda group: group.identity["layers"])
    return found


def draw(axes, groups: List[Group], metric: str) -> None:
    """Draw one metric's panel."""
    depths = set()
    for name, line in lines(groups, metric).items():
        layers = [group.identity["layers"] for group in line]
        means, errors = mean_and_range([group.values(metric) for group in line])
        axes.errorbar(layers, means, errors, marker="o", capsize=3, label=name)
        depths |= set(layers)
    axes.set_xticks(sorted(depths))
    axes.set_xlabel("layers")
    axes.set_ylabel(HEADINGS.get(metric, metric))
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


def main(out: str, *metrics: str) -> None:
    """Write OUT/layers.png, with the metrics that the results have."""
    groups = grouped(read_runs(out))
    drawn = [metric for metric in metrics if lines(groups, metric)]
    if not drawn:
        sys.exit(f"{out}: no results have a number of layers and {' or '.join(metrics)}; name another metric")
    figure, all_axes = pyplot.subplots(1, len(drawn), figsize=(6 * len(drawn), 4), squeeze=False)
    for axes, metric in zip(all_axes[0], drawn):
        draw(axes, groups, metric)
    save_figure(figure, os.path.join(out, "layers.png"))
    print(f"{out}/layers.png")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("give a folder and metrics: layers.py OUT METRIC…")
    main(*sys.argv[1:])
