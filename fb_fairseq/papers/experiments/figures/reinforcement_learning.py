"""Summarise the runs of one environment: ``reinforcement_learning OUT ENVIRONMENT small|full``.

Reads the results OUT/*.json, the logs OUT/*/log.jsonl and OUT/*.hardware, and writes OUT/results.json, the learning
curves OUT/curves.png and, if there are spans, OUT/memory.png: success against memory size (v3 Figure 3).

The training reward is the papers' measure: the mean over the last 500 episodes of training (v3 §6.1).
"""

import glob
import json
import os
import re

from fb_fairseq.drawing import draw_figure
from fb_fairseq.errors import UserError
from fb_fairseq.papers.experiments.reinforcement_learning import AGENTS
from fb_fairseq.papers.rl.log import curves_figure, read_curve, training_seconds
from fb_fairseq.papers.runner.figures import against
from fb_fairseq.papers.runner.options import run_main
from fb_fairseq.papers.runner.results import grouped, training_cost

NAME = re.compile(r"(\w+?)(?:-span(\d+))?-seed(\d+)\.json")


def read_results(out: str, environment: str, scale: str) -> dict[str, dict]:
    """The result of each run, by its name: agents in their order, short spans first."""
    found = {}
    for path in glob.glob(os.path.join(glob.escape(out), "*-seed*.json")):
        match = NAME.fullmatch(os.path.basename(path))
        if match:
            run = path[: -len(".json")]
            span, seed = match[2] and int(match[2]), int(match[3])
            identity = {"recipe": environment, "small": scale == "small", "model": match[1], "span": span, "seed": seed}
            curve = read_curve(run, "reward")
            with open(path) as file:
                result = {**identity, **json.load(file), "training_reward": curve[-1][1] if curve else None}
            result.update(training_cost(run), seconds=round(training_seconds(run)))
            found[AGENTS.index(match[1]), span or 0, seed] = os.path.basename(run), result
    if not found:
        raise UserError(f"{out}: contains no results of runs; give the --out folder of an environment's script")
    return dict(result for _, result in sorted(found.items()))


def main(out: str, environment: str, scale: str) -> None:
    """Summarise the runs in the folder ``out``."""
    runs = read_results(out, environment, scale)
    with open(os.path.join(out, "results.json"), "w") as file:
        json.dump(runs, file, indent=4)
    groups = grouped({**run, "path": os.path.join(out, name)} for name, run in runs.items())
    curves = [[read_curve(run["path"], "reward") for run in group.runs] for group in groups]
    drawn = {name: seeds for name, seeds in zip(against.labels(groups), curves) if all(seeds)}
    if drawn:
        draw_figure(os.path.join(out, "curves.png"), curves_figure(drawn, "reward"))
    if any(run["span"] for run in runs.values()):
        draw_figure(os.path.join(out, "memory.png"), against.panels(groups, "span", ["success"]))
    print(f"{out}/results.json")


if __name__ == "__main__":
    run_main(main)
