"""Learning curves of agents."""

import os
from functools import partial

from fb_fairseq.drawing import Panel, colors, draw_band, plain
from fb_fairseq.errors import UserError
from fb_fairseq.papers.rl.log import Curve, read_curve

METRIC_LABELS = {"reward": "reward per episode", "success": "share of episodes with a reward"}
MILLION = 10**6


def group_by_name(runs: list[str]) -> dict[str, list[str]]:
    """Group runs of the form NAME=FOLDER by their names. A folder without a name gets its own."""
    groups: dict[str, list[str]] = {}
    for run in runs:
        name, equals, folder = run.partition("=")
        if not equals or os.path.isdir(run):
            name, folder = os.path.basename(os.path.normpath(run)), run
        groups.setdefault(name, []).append(folder)
    return groups


def read_curves(runs: list[str], metric: str) -> dict[str, list[Curve]]:
    """The curves of a metric by name, for runs of the form NAME=FOLDER."""
    curves = {name: [read_curve(folder, metric) for folder in folders] for name, folders in group_by_name(runs).items()}
    for name, seeds in curves.items():
        if not all(seeds):
            raise UserError(f"{name}: the log contains no {metric}; choose another --metric")
    return curves


def draw_rewards(axes, curves: dict[str, list[Curve]], metric: str) -> None:
    """Draw the mean and range of the curves of each name, at the frames that all of them contain.

    Args:
        axes: matplotlib axes.
        curves: curves of the seeds, by name.
        metric: name of the metric.
    """
    color = colors(curves)
    last = max(frames for seeds in curves.values() for curve in seeds for frames, _ in curve)
    unit = MILLION if last >= MILLION else 1
    for name, seeds in curves.items():
        values = [dict(curve) for curve in seeds]
        frames = sorted(set.intersection(*map(set, values)))
        if not frames:
            raise UserError(
                f"{name}: the logs have no frames in common; train all runs with the same --environments, --block and "
                "--log-interval"
            )
        means = [[curve[frame] for curve in values] for frame in frames]
        draw_band(axes, [frame / unit for frame in frames], means, plain(name), color[name])
    axes.set_xlabel("frames of training" + (" (millions)" if unit == MILLION else ""))
    axes.set_ylabel(METRIC_LABELS.get(metric, metric))


def curves_figure(curves: dict[str, list[Curve]], metric: str) -> list[Panel]:
    """The panel of a figure of learning curves; see ``draw_rewards``."""
    return [Panel(partial(draw_rewards, curves=curves, metric=metric))]
