"""Summarise the runs of one environment: ``summary.py OUT``.

Reads the results OUT/*.json and the logs OUT/*/log.jsonl, and writes

    OUT/results.json  success and reward of each agent at its shortest span, means over seeds; all runs under ``all``
    OUT/curves.png    learning curves
    OUT/memory.png    success against memory size (v3 Figure 3), if several spans were compared
"""

import glob
import json
import os
import re
import statistics
import sys
from typing import Dict, List, Optional, Tuple

import matplotlib

from fb_fairseq.drawing import mean_and_range, save_figure
from fb_fairseq.rl.log import read_curve
from fb_fairseq.rl.plot import draw_curves

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

NAMES = {"feedback": "Feedback Transformer", "transformer": "Transformer", "lstm": "LSTM"}
Setting = Tuple[str, Optional[int]]  # agent and span; None for the preset's span


def read_results(out: str) -> Dict[Setting, List[dict]]:
    """Results by setting, the shortest span of each agent first. Agent, span, seed and run (the run's folder) are added
    to each result."""
    results: Dict[Setting, List[dict]] = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(out), "*-seed*.json"))):
        match = re.fullmatch(r"(\w+?)(?:-span(\d+))?-seed(\d+)\.json", os.path.basename(path))
        if match:
            agent, span, seed = match[1], match[2] and int(match[2]), int(match[3])
            with open(path) as file:
                result = {"agent": agent, "span": span, "seed": seed, **json.load(file), "run": path[: -len(".json")]}
            results.setdefault((agent, span), []).append(result)
    if not results:
        sys.exit(f"{out}: contains no results of runs; give the --out folder of an environment's script")
    return dict(sorted(results.items(), key=lambda item: (list(NAMES).index(item[0][0]), item[0][1] or float("inf"))))


def label(setting: Setting) -> str:
    """Name of a setting in figures and text."""
    agent, span = setting
    return f"{NAMES[agent]}, span {span}" if span else NAMES[agent]


def mean(runs: List[dict], metric: str) -> float:
    """Mean of a metric over seeds."""
    return statistics.mean(run[metric] for run in runs)


def spread(runs: List[dict], metric: str) -> float:
    """Standard deviation of a metric over seeds; 0 for a single seed."""
    return statistics.stdev(run[metric] for run in runs) if len(runs) > 1 else 0.0


def draw_memory(results: Dict[Setting, List[dict]], path: str) -> None:
    """Draw success against span: mean and range over seeds. Agents without a span are horizontal lines."""
    figure, axes = pyplot.subplots(figsize=(6, 4))
    for agent in dict.fromkeys(agent for agent, _ in results):
        points = [(span, runs) for (other, span), runs in results.items() if other == agent and span]
        if not points:  # an LSTM
            axes.axhline(mean(results[agent, None], "success"), label=NAMES[agent], color="grey", linestyle=":")
            continue
        means, errors = mean_and_range([[run["success"] for run in runs] for _, runs in points])
        axes.errorbar([span for span, _ in points], means, errors, marker="o", capsize=3, label=NAMES[agent])
    axes.set_xscale("log", base=2)
    spans = sorted({span for _, span in results if span})
    axes.set_xticks(spans)
    axes.set_xticklabels(spans)
    axes.set_xlabel("memory size: attention span (steps)")
    axes.set_ylabel("success (%)")
    axes.set_ylim(0, 102)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    save_figure(figure, path)


def print_results(results: Dict[Setting, List[dict]]) -> None:
    """Print success and reward of each setting, with their standard deviations."""
    for setting, runs in results.items():
        values = [f"{metric} {mean(runs, metric):.2f} ± {spread(runs, metric):.2f}" for metric in ("success", "reward")]
        print(f"{label(setting)}: {', '.join(values)} ({len(runs)} seeds)")


def write_results(results: Dict[Setting, List[dict]], path: str) -> None:
    """Write results.json."""
    written: Dict[str, object] = {}
    for (agent, span), runs in results.items():
        if agent not in written:  # the shortest span
            written[agent] = {
                "success": mean(runs, "success"),
                "reward": mean(runs, "reward"),
                "span": span,
                "success_spread": spread(runs, "success"),
                "reward_spread": spread(runs, "reward"),
                "seeds": [run["seed"] for run in runs],
            }
    written["all"] = [
        {name: value for name, value in run.items() if name != "run"} for runs in results.values() for run in runs
    ]
    with open(path, "w") as file:
        json.dump(written, file, indent=4)


def main(out: str) -> None:
    """Summarise the runs in the folder ``out``."""
    results = read_results(out)
    print_results(results)
    write_results(results, os.path.join(out, "results.json"))
    metric = "success" if any(span for _, span in results) else "reward"
    curves = {}
    for setting, runs in results.items():
        seeds = [read_curve(run["run"], metric) for run in runs]
        if all(seeds):  # short runs may end before the first episode does
            curves[label(setting)] = seeds
    if curves:
        draw_curves(curves, metric, os.path.join(out, "curves.png"))
    if len({span for _, span in results if span}) > 1:
        draw_memory(results, os.path.join(out, "memory.png"))
    print(f"{out}/results.json")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("give one folder: summary.py OUT")
    main(sys.argv[1])
