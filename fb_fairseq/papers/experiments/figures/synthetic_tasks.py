"""Summarise the runs of a task, OUT/*/results.json and their logs, in a table and figures: ``synthetic_tasks OUT``.

OUT/summary.md has means and standard deviations over the seeds, OUT/summary.json the results of every run.
OUT/summary.png shows the accuracy by updates, depth and attention span: the mean, and the range from the lowest to the
highest.
"""

import glob
import json
import os
import statistics
from functools import partial
from typing import NamedTuple

from fb_fairseq.commands.plot.logs import read_log
from fb_fairseq.drawing import Panel, colors, draw_band, draw_figure, draw_points, model_name
from fb_fairseq.errors import UserError
from fb_fairseq.papers.runner.figures.program import run_main
from fb_fairseq.papers.runner.results import spread


class Setting(NamedTuple):
    """What runs have in common that differ only in their seed."""

    model: str
    layers: int
    attention_span: int | None  # None for an LSTM

    def __str__(self):
        span = "" if self.attention_span is None else f", span {self.attention_span}"
        return f"{model_name(self.model)}, {layers_of(self)}{span}"


def layers_of(setting: Setting) -> str:
    """The number of layers in words, such as ``2 layers``."""
    return f"{setting.layers} layer" + ("s" if setting.layers > 1 else "")


class Run(NamedTuple):
    """One trained model."""

    result: dict  # its entry in results.json
    log: str  # path of its training log


def read(out: str) -> dict[Setting, list[Run]]:
    """Read the runs of a sweep by setting, sorted by seed."""
    runs: dict[Setting, list[Run]] = {}
    for path in glob.glob(os.path.join(glob.escape(out), "*", "results.json")):
        with open(path, encoding="utf-8") as file:
            for model, result in json.load(file).items():
                setting = Setting(model, result["layers"], result.get("attention_span"))
                log = os.path.join(os.path.dirname(path), f"{model}.log")
                runs.setdefault(setting, []).append(Run(result, log))
    if not runs:
        raise UserError(f"{out}: contains no */results.json; give the folder of a sweep")
    for found in runs.values():
        found.sort(key=lambda run: run.result["seed"])
    return dict(sorted(runs.items(), key=lambda item: (item[0].model, item[0].layers, item[0].attention_span or 0)))


def table(runs: dict[Setting, list[Run]]) -> list[str]:
    """Format a Markdown table with one row per setting."""
    columns = ("model", "layers", "span", "parameters", "updates", "seeds")
    columns += ("labels right, %", "sequences right, %", "minutes per run")
    lines = ["| " + " | ".join(columns) + " |", "|---|---:|---:|---:|---:|---|---:|---:|---:|"]
    for setting, found in runs.items():
        results = [run.result for run in found]
        cells = [
            model_name(setting.model),
            setting.layers,
            setting.attention_span or "",
            f"{results[0]['parameters']:,}",
            results[0]["updates"],
            ", ".join(str(result["seed"]) for result in results),
            spread([result["accuracy"] for result in results], "accuracy"),
            spread([result["sequence_accuracy"] for result in results], "sequence_accuracy"),
            f"{statistics.mean(result['seconds'] for result in results) / 60:.1f}",
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def draw_updates(axes, runs: dict[Setting, list[Run]]) -> None:
    """Draw the training accuracy against updates, one line and band per setting."""
    color = colors(map(str, runs))
    for setting, found in runs.items():
        at: dict[float, list[float]] = {}
        for run in found:
            for update, accuracy in read_log(run.log, "accuracy").get("train_inner", []):
                at.setdefault(update, []).append(accuracy)
        updates = sorted(at)
        if updates:
            draw_band(axes, updates, [at[update] for update in updates], str(setting), color[str(setting)])
    axes.set_xlabel("updates")
    set_accuracy(axes)


def draw_against(axes, runs: dict[Setting, list[Run]], field: str, label: str) -> None:
    """Draw the test accuracy against one field of the setting, one line per combination of the other fields."""
    lines: dict[Setting, list] = {}
    for setting, found in runs.items():
        if getattr(setting, field) is not None:
            lines.setdefault(setting._replace(**{field: 0}), []).append((getattr(setting, field), found))
    names = {}
    for others in lines:
        names[others] = model_name(others.model)
        if field == "layers" and others.attention_span:
            names[others] += f", span {others.attention_span}"
        elif field != "layers":
            names[others] += f", {layers_of(others)}"
    color = colors(names.values())
    for others, points in lines.items():
        values = [[run.result["accuracy"] for run in found] for _, found in points]
        draw_points(axes, [x for x, _ in points], values, names[others], color[names[others]])
    axes.set_xlabel(label)
    axes.set_xticks(sorted({x for points in lines.values() for x, _ in points}))
    set_accuracy(axes)


def set_accuracy(axes) -> None:
    """The y axis of all panels."""
    axes.set_ylabel("accuracy (% of the labels)")
    axes.set_ylim(0, 102)


def panels(runs: dict[Setting, list[Run]]) -> list[Panel]:
    """Updates, and depth and span if the runs differ in them."""
    drawn = [Panel(partial(draw_updates, runs=runs), wide=True)]
    for field, label in (("layers", "number of layers"), ("attention_span", "attention span (steps)")):
        if len({getattr(setting, field) for setting in runs} - {None}) > 1:
            drawn.append(Panel(partial(draw_against, runs=runs, field=field, label=label)))
    return drawn


def main(out: str) -> None:
    """Write the table and the figure of the runs in a folder."""
    runs = read(out)
    lines = table(runs)
    with open(os.path.join(out, "summary.md"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    summary = [{**setting._asdict(), "runs": [run.result for run in found]} for setting, found in runs.items()]
    with open(os.path.join(out, "summary.json"), "w", encoding="utf-8") as file:
        json.dump(summary, file, indent=4)
    draw_figure(os.path.join(out, "summary.png"), panels(runs))
    print("\n".join(lines))
    print(f"{out}/summary.md, summary.json, summary.png")


if __name__ == "__main__":
    run_main(main)
