"""Learning curves of agents."""

import json
import os
from typing import Dict, List, Tuple

from fb_fairseq.figures import draw_band

Curve = List[Tuple[int, float]]


def entries(path: str) -> List[dict]:
    """The lines of a log; a last one that was half written is left out."""
    found = []
    with open(path) as file:
        for line in file:
            if line.endswith("\n"):
                found.append(json.loads(line))
    return found


def read_log(folder: str, metric: str) -> Curve:
    """(frames, value) of a run; nothing where the metric is not logged, as a reward before the first episode ended.

    Raises:
        ValueError: the folder has no log of ``train``.
    """
    path = os.path.join(folder, "log.jsonl")
    if not os.path.isfile(path):
        raise ValueError(f"{folder}: no log.jsonl lies there; give the --out of train")
    return [(entry["frames"], entry[metric]) for entry in entries(path) if metric in entry]


def by_name(runs: List[str]) -> Dict[str, List[str]]:
    """Folders by their names: of NAME=FOLDER, or their own."""
    named: Dict[str, List[str]] = {}
    for run in runs:
        name, equals, folder = run.partition("=")
        if not equals or os.path.isdir(run):
            name, folder = os.path.basename(os.path.normpath(run)), run
        named.setdefault(name, []).append(folder)
    return named


def read_curves(runs: List[str], metric: str) -> Dict[str, List[Curve]]:
    """The curves of the command line's runs, NAME=FOLDER.

    Raises:
        ValueError: a folder has no log, or the log not this metric.
    """
    curves = {name: [read_log(folder, metric) for folder in folders] for name, folders in by_name(runs).items()}
    for name, found in curves.items():
        if not all(found):
            raise ValueError(f"{name}: no {metric} is logged there; name another with --metric")
    return curves


def draw_curves(curves: Dict[str, List[Curve]], metric: str, out: str, title: str = "") -> None:
    """Mean and range over the curves of each name, where all of them have a value.

    Raises:
        ValueError: those of a name have no frames in common.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4))
    for i, (name, found) in enumerate(curves.items()):
        values = [dict(curve) for curve in found]
        frames = sorted(set.intersection(*map(set, values)))
        if not frames:
            raise ValueError(
                f"{name}: the logs have no frames in common; train all with the same block and --log-interval"
            )
        draw_band(
            axes, frames, [[curve[frame] for curve in values] for frame in frames], label=name, color=f"C{i % 10}"
        )
    axes.set_xlabel("frames")
    axes.set_ylabel({"reward": "reward an episode", "success": "share of episodes with a reward"}.get(metric, metric))
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(out, dpi=120)
    pyplot.close(figure)
