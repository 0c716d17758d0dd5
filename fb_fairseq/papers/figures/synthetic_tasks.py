"""Draw the runs of a task, OUT/*/results.json and their logs, to OUT/summary.png: ``synthetic_tasks OUT``.

The accuracy by updates, depth and attention span: the mean over seeds, and the range from the lowest to the highest.
"""

import os
from collections.abc import Sequence
from functools import partial

from fb_fairseq.commands.plot.files import read_log
from fb_fairseq.drawing import Panel, colors, draw_band, draw_figure
from fb_fairseq.papers.figures import against
from fb_fairseq.papers.results.program import run_main
from fb_fairseq.papers.results.runs import Group, grouped, read_runs


def draw_updates(axes, groups: Sequence[Group]) -> None:
    """Draw the training accuracy against updates, one line and band per setting."""
    names = against.labels(groups)
    color = colors(names)
    for name, group in zip(names, groups):
        at: dict[float, list[float]] = {}
        for run in group.runs:
            for update, accuracy in read_log(f"{run['path']}.log", "accuracy").get("train_inner", []):
                at.setdefault(update, []).append(accuracy)
        updates = sorted(at)
        if updates:
            draw_band(axes, updates, [at[update] for update in updates], name, color[name])
    axes.set_xlabel("updates")
    axes.set_ylabel("accuracy (% of the labels)")
    axes.set_ylim(0, 102)


def main(out: str) -> None:
    """Draw updates, and depth and span if the runs differ in them."""
    groups = grouped(read_runs(out))
    panels = [Panel(partial(draw_updates, groups=groups), wide=True)]
    for field in ("layers", "attention_span"):
        if len({against.value_of(group, field) for group in groups} - {None}) > 1:
            panels += against.panels(groups, field, ["accuracy"])
    draw_figure(os.path.join(out, "summary.png"), panels)
    print(f"{out}/summary.png")


if __name__ == "__main__":
    run_main(main)
