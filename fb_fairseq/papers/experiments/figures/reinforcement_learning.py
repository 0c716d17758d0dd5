"""Summarise the runs of one environment: ``reinforcement_learning OUT ENVIRONMENT small|full``.

Reads the results OUT/*.json, the logs OUT/*/log.jsonl and OUT/*.hardware, and writes

    OUT/results.json  of each agent at its shortest span, and of each agent and span under ``settings``: success, reward
                      and training reward, means over seeds, and their standard deviations; all runs under ``all``
    OUT/curves.png    learning curves
    OUT/memory.png    success against memory size (v3 Figure 3), if several spans were compared

The training reward is the papers' measure: the mean over the last 500 episodes of training (v3 §6.1).
"""

import glob
import json
import os
import re
import statistics
from functools import partial

from fb_fairseq.drawing import Panel, draw_figure, draw_points, draw_reference, model_color, model_name
from fb_fairseq.errors import UserError
from fb_fairseq.papers.rl.log import read_curve, training_seconds
from fb_fairseq.papers.rl.plot import curves_figure
from fb_fairseq.papers.runner.figures.program import run_main
from fb_fairseq.papers.runner.results import spread, training_cost

AGENTS = ("feedback", "transformer", "lstm")
METRICS = ("success", "reward", "training_reward")
Setting = tuple[str, int | None]  # agent and span; None for the preset's span


def read_results(out: str) -> dict[Setting, list[dict]]:
    """Results by setting, the shortest span of each agent first. Agent, span, seed, training reward (None if no episode
    has ended), seconds and hardware of training, and run (the run's folder) are added to each result.
    """
    results = []
    for path in sorted(glob.glob(os.path.join(glob.escape(out), "*-seed*.json"))):
        match = re.fullmatch(r"(\w+?)(?:-span(\d+))?-seed(\d+)\.json", os.path.basename(path))
        if match:
            agent, span, seed = match[1], match[2] and int(match[2]), int(match[3])
            run = path[: -len(".json")]
            with open(path) as file:
                result = {"agent": agent, "span": span, "seed": seed, **json.load(file), "run": run}
            curve = read_curve(run, "reward")
            result["training_reward"] = curve[-1][1] if curve else None
            result.update(training_cost(run), seconds=round(training_seconds(run)))
            results.append(result)
    if not results:
        raise UserError(f"{out}: contains no results of runs; give the --out folder of an environment's script")
    return by_setting(results)


def by_setting(runs: list[dict]) -> dict[Setting, list[dict]]:
    """The results of ``read_results`` for runs that name their agent, span and seed."""
    results: dict[Setting, list[dict]] = {}
    for run in sorted(runs, key=lambda run: run["seed"]):
        results.setdefault((run["agent"], run["span"]), []).append(run)
    return dict(sorted(results.items(), key=lambda item: (AGENTS.index(item[0][0]), item[0][1] or float("inf"))))


def label(setting: Setting) -> str:
    """Name of a setting in figures and text."""
    agent, span = setting
    return f"{model_name(agent)}, span {span}" if span else model_name(agent)


def mean(runs: list[dict], metric: str) -> float | None:
    """Mean of a metric over seeds; None if a run lacks it."""
    values = [run[metric] for run in runs]
    return None if None in values else statistics.mean(values)


def deviation(runs: list[dict], metric: str) -> float | None:
    """Sample standard deviation of a metric over seeds; None for a single seed, or if a run lacks the metric."""
    values = [run[metric] for run in runs]
    return None if None in values or len(values) == 1 else statistics.stdev(values)


def draw_memory(axes, results: dict[Setting, list[dict]]) -> None:
    """Draw success against span: mean and range over seeds. Agents without a span are horizontal lines."""
    for agent in dict.fromkeys(agent for agent, _ in results):
        points = [(span, runs) for (other, span), runs in results.items() if other == agent and span]
        if not points:  # an LSTM
            draw_reference(axes, mean(results[agent, None], "success"), model_name(agent), model_color(agent))
            continue
        values = [[run["success"] for run in runs] for _, runs in points]
        draw_points(axes, [span for span, _ in points], values, model_name(agent), model_color(agent))
    axes.set_xscale("log", base=2)
    spans = sorted({span for _, span in results if span})
    axes.set_xticks(spans, map(str, spans))
    axes.set_xlabel("attention span (steps)")
    axes.set_ylabel("success (% of the episodes)")
    axes.set_ylim(0, 102)


def print_results(results: dict[Setting, list[dict]]) -> None:
    """Print the metrics of each setting, with their standard deviations if there are several seeds."""
    for setting, runs in results.items():
        values = []
        for metric in METRICS:
            found = [run[metric] for run in runs]
            if None not in found:
                values.append(f"{metric.replace('_', ' ')} {spread(found, metric)}")
        print(f"{label(setting)}: {', '.join(values)} ({len(runs)} seed{'s' if len(runs) > 1 else ''})")


def summarise(setting: Setting, runs: list[dict]) -> dict:
    """The entry of a setting in results.json."""
    means = {metric: mean(runs, metric) for metric in METRICS}
    spreads = {f"{metric}_spread": deviation(runs, metric) for metric in METRICS}
    return {"agent": setting[0], "span": setting[1], **means, **spreads, "seeds": [run["seed"] for run in runs]}


def write_results(results: dict[Setting, list[dict]], environment: str, scale: str, path: str) -> None:
    """Write results.json."""
    recipe = {"recipe": environment, "small": scale == "small"}
    settings = [summarise(setting, runs) for setting, runs in results.items()]
    written: dict[str, object] = {}
    for entry in settings:
        written.setdefault(entry["agent"], entry)  # the shortest span
    written["settings"] = settings
    written["all"] = [
        {**recipe, **{name: value for name, value in run.items() if name != "run"}}
        for runs in results.values()
        for run in runs
    ]
    with open(path, "w") as file:
        json.dump(written, file, indent=4)


def main(out: str, environment: str, scale: str) -> None:
    """Summarise the runs in the folder ``out``."""
    results = read_results(out)
    print_results(results)
    write_results(results, environment, scale, os.path.join(out, "results.json"))
    metric = "success" if any(span for _, span in results) else "reward"
    curves = {}
    for setting, runs in results.items():
        seeds = [read_curve(run["run"], metric) for run in runs]
        if all(seeds):  # short runs may end before the first episode does
            curves[label(setting)] = seeds
    if curves:
        draw_figure(os.path.join(out, "curves.png"), curves_figure(curves, metric))
    if len({span for _, span in results if span}) > 1:
        draw_figure(os.path.join(out, "memory.png"), [Panel(partial(draw_memory, results=results))])
    print(f"{out}/results.json")


if __name__ == "__main__":
    run_main(main)
