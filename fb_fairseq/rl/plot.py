"""Learning curves of agents."""

import json
import os
import statistics
from typing import Dict, List, Tuple


def read_log(folder: str, metric: str) -> List[Tuple[int, float]]:
    """(frames, value) of a run.

    Raises:
        ValueError: the folder has no log of ``train``, or the log not this metric.
    """
    path = os.path.join(folder, "log.jsonl")
    if not os.path.isfile(path):
        raise ValueError(f"{folder}: no log.jsonl lies there; give the --out of train")
    with open(path) as file:
        entries = [json.loads(line) for line in file]
    curve = [(entry["frames"], entry[metric]) for entry in entries if metric in entry]
    if not curve:
        raise ValueError(f"{path}: no {metric} is logged there; name another with --metric")
    return curve


def by_name(runs: List[str]) -> Dict[str, List[str]]:
    """Folders by their names, NAME=FOLDER."""
    named: Dict[str, List[str]] = {}
    for run in runs:
        name, _, folder = run.rpartition("=")
        named.setdefault(name or os.path.basename(os.path.normpath(folder)), []).append(folder)
    return named


def draw_curves(runs: List[str], metric: str, out: str, title: str = "") -> None:
    """Mean and range over the runs of each name. See ``read_log``."""
    curves = {name: [dict(read_log(folder, metric)) for folder in folders] for name, folders in by_name(runs).items()}
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4))
    for i, (name, found) in enumerate(curves.items()):
        frames = sorted(set.intersection(*map(set, found)))
        values = [[curve[frame] for curve in found] for frame in frames]
        axes.plot(frames, [statistics.mean(v) for v in values], label=name, color=f"C{i % 10}")
        axes.fill_between(frames, list(map(min, values)), list(map(max, values)), color=f"C{i % 10}", alpha=0.2, linewidth=0)
    axes.set_xlabel("frames")
    axes.set_ylabel({"reward": "reward an episode", "success": "share of episodes with a reward"}.get(metric, metric))
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(out, dpi=120)
    pyplot.close(figure)
