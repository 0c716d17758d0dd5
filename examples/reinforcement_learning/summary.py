"""Results and figures of an environment's runs: ``summary.py OUT``, of OUT/*/log.jsonl and OUT/*.json.

OUT/results.json has for each agent success and reward, means over the seeds, at the shortest memory; ``all`` has every run.
OUT/curves.png: learning curves; OUT/memory.png, where spans were compared: success against memory size (v3 Figure 3).
"""

import glob
import json
import os
import re
import statistics
import sys
from typing import Dict, List, Optional, Tuple

import matplotlib

from fb_fairseq.figures import mean_and_range
from fb_fairseq.rl.plot import draw_curves, read_log

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

NAMES = {"feedback": "Feedback Transformer", "transformer": "Transformer", "lstm": "LSTM"}
Setting = Tuple[str, Optional[int]]  # agent and span; None: the preset's


def read(out: str) -> Dict[Setting, List[dict]]:
    """Results by setting, with agent, span, seed and run (its folder) in each."""
    found: Dict[Setting, List[dict]] = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(out), "*-seed*.json"))):
        match = re.fullmatch(r"(\w+?)(?:-span(\d+))?-seed(\d+)\.json", os.path.basename(path))
        if match:
            agent, span, seed = match[1], match[2] and int(match[2]), int(match[3])
            with open(path) as file:
                result = {"agent": agent, "span": span, "seed": seed, **json.load(file), "run": path[: -len(".json")]}
            found.setdefault((agent, span), []).append(result)
    if not found:
        sys.exit(f"{out}: no results of runs lie there; give the --out of an environment's script")
    return dict(sorted(found.items(), key=lambda item: (list(NAMES).index(item[0][0]), item[0][1] or float("inf"))))


def mean_of(results: List[dict], metric: str) -> float:
    return statistics.mean(result[metric] for result in results)


def spread_of(results: List[dict], metric: str) -> float:
    return statistics.stdev(result[metric] for result in results) if len(results) > 1 else 0.0


def draw_memory(found: Dict[Setting, List[dict]], path: str) -> None:
    figure, axes = pyplot.subplots(figsize=(6, 4))
    for agent in dict.fromkeys(agent for agent, _ in found):
        points = [(span, results) for (other, span), results in found.items() if other == agent and span]
        if not points:  # an LSTM
            value = mean_of(found[agent, None], "success")
            axes.axhline(value, label=NAMES[agent], color="grey", linestyle=":")
            continue
        means, around = mean_and_range([[result["success"] for result in results] for _, results in points])
        axes.errorbar([span for span, _ in points], means, around, marker="o", capsize=3, label=NAMES[agent])
    axes.set_xscale("log", base=2)
    spans = sorted({span for _, span in found if span})
    axes.set_xticks(spans)
    axes.set_xticklabels(spans)
    axes.set_xlabel("memory size: attention span (steps)")
    axes.set_ylabel("success (%)")
    axes.set_ylim(0, 102)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main(out: str) -> None:
    found = read(out)
    results: Dict[str, object] = {}
    for (agent, span), runs in found.items():
        line = f"{NAMES[agent]}{f', span {span}' if span else ''}: "
        values = []
        for metric in ("success", "reward"):
            values.append(f"{metric} {mean_of(runs, metric):.2f} ± {spread_of(runs, metric):.2f}")
        print(line + ", ".join(values) + f" ({len(runs)} seeds)")
        results.setdefault(
            agent,
            {  # the shortest span comes first
                "success": mean_of(runs, "success"),
                "reward": mean_of(runs, "reward"),
                "span": span,
                "success_spread": spread_of(runs, "success"),
                "reward_spread": spread_of(runs, "reward"),
                "seeds": [run["seed"] for run in runs],
            },
        )
    results["all"] = [
        {name: value for name, value in run.items() if name != "run"} for runs in found.values() for run in runs
    ]
    with open(os.path.join(out, "results.json"), "w") as file:
        json.dump(results, file, indent=4)
    metric = "success" if any(span for _, span in found) else "reward"
    curves = {}
    for (agent, span), runs in found.items():
        logs = [read_log(run["run"], metric) for run in runs]
        if all(logs):
            curves[f"{NAMES[agent]}{f', span {span}' if span else ''}"] = logs
    if curves:
        draw_curves(curves, metric, os.path.join(out, "curves.png"))
    if len({span for _, span in found if span}) > 1:
        draw_memory(found, os.path.join(out, "memory.png"))
    print(f"{out}/results.json")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("give one folder: summary.py OUT")
    main(sys.argv[1])
