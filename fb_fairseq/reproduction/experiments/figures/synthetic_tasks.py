"""Summarise the runs of a task, OUT/*/results.json and their logs, in a table and figures: ``synthetic_tasks OUT``.

OUT/summary.md has means and standard deviations over the seeds, OUT/summary.json the results of every run.
OUT/summary.png shows the accuracy by updates, depth and attention span: the mean, and the range from the lowest to the
highest.
"""

import glob
import json
import os
import statistics
import sys
from typing import Dict, List, NamedTuple, Optional

import matplotlib

from fb_fairseq.commands.plot.logs import read_log
from fb_fairseq.drawing import draw_band, mean_and_range, save_figure
from fb_fairseq.recipes.results import spread

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

NAMES = {
    "feedback_transformer_lm": "Feedback Transformer",
    "relative_transformer_lm": "Transformer",
    "streaming_lstm_lm": "LSTM",
}


class Setting(NamedTuple):
    """What runs have in common that differ only in their seed."""

    model: str
    layers: int
    attention_span: Optional[int]  # None for an LSTM

    def __str__(self):
        span = "" if self.attention_span is None else f", span {self.attention_span}"
        return f"{NAMES.get(self.model, self.model)}, {layers_of(self)}{span}"


def layers_of(setting: Setting) -> str:
    """The number of layers in words, such as ``2 layers``."""
    return f"{setting.layers} layer" + ("s" if setting.layers > 1 else "")


class Run(NamedTuple):
    """One trained model."""

    result: dict  # its entry in results.json
    log: str  # path of its training log


def read(out: str) -> Dict[Setting, List[Run]]:
    """Read the runs of a sweep by setting, sorted by seed."""
    runs: Dict[Setting, List[Run]] = {}
    for path in glob.glob(os.path.join(glob.escape(out), "*", "results.json")):
        with open(path, encoding="utf-8") as file:
            for model, result in json.load(file).items():
                setting = Setting(model, result["layers"], result.get("attention_span"))
                log = os.path.join(os.path.dirname(path), f"{model}.log")
                runs.setdefault(setting, []).append(Run(result, log))
    if not runs:
        sys.exit(f"{out}: contains no */results.json; give the folder of a sweep")
    for found in runs.values():
        found.sort(key=lambda run: run.result["seed"])
    return dict(sorted(runs.items(), key=lambda item: (item[0].model, item[0].layers, item[0].attention_span or 0)))


def table(runs: Dict[Setting, List[Run]]) -> List[str]:
    """Format a Markdown table with one row per setting."""
    columns = ("model", "layers", "span", "parameters", "updates", "seeds")
    columns += ("labels right, %", "sequences right, %", "minutes per run")
    lines = ["| " + " | ".join(columns) + " |", "|---|---:|---:|---:|---:|---|---:|---:|---:|"]
    for setting, found in runs.items():
        results = [run.result for run in found]
        cells = [
            NAMES.get(setting.model, setting.model),
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


def draw_updates(axes, runs: Dict[Setting, List[Run]]) -> None:
    """Draw the training accuracy against updates, one line and band per setting."""
    for i, (setting, found) in enumerate(runs.items()):
        at: Dict[float, List[float]] = {}
        for run in found:
            for update, accuracy in read_log(run.log, "accuracy").get("train_inner", []):
                at.setdefault(update, []).append(accuracy)
        updates = sorted(at)
        if updates:
            draw_band(axes, updates, [at[update] for update in updates], label=str(setting), color=f"C{i % 10}")
    axes.set_xlabel("updates")


def draw_against(axes, runs: Dict[Setting, List[Run]], field: str, label: str) -> None:
    """Draw the test accuracy against one field of the setting, one line per combination of the other fields."""
    lines: Dict[Setting, list] = {}
    for setting, found in runs.items():
        if getattr(setting, field) is not None:
            lines.setdefault(setting._replace(**{field: 0}), []).append((getattr(setting, field), found))
    for i, (others, points) in enumerate(lines.items()):
        means, around = mean_and_range([[run.result["accuracy"] for run in found] for _, found in points])
        name = NAMES.get(others.model, others.model)
        if field == "layers" and others.attention_span:
            name += f", span {others.attention_span}"
        elif field != "layers":
            name += f", {layers_of(others)}"
        axes.errorbar([x for x, _ in points], means, around, marker="o", capsize=3, label=name, color=f"C{i % 10}")
    axes.set_xlabel(label)
    axes.set_xticks(sorted({x for points in lines.values() for x, _ in points}))


def draw(runs: Dict[Setting, List[Run]], path: str) -> None:
    """Draw all panels: updates, and depth and span if the runs differ in them."""
    panels = [lambda axes: draw_updates(axes, runs)]
    for field, label in (("layers", "layers"), ("attention_span", "attention span (steps)")):
        if len({getattr(setting, field) for setting in runs} - {None}) > 1:
            panels.append(lambda axes, field=field, label=label: draw_against(axes, runs, field, label))
    figure, all_axes = pyplot.subplots(1, len(panels), figsize=(6 * len(panels), 4), squeeze=False)
    for axes, panel in zip(all_axes[0], panels):
        panel(axes)
        axes.set_ylabel("accuracy (%)")
        axes.set_ylim(0, 102)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    save_figure(figure, path)


def main(out: str) -> None:
    """Write the table and the figure of the runs in a folder."""
    runs = read(out)
    lines = table(runs)
    with open(os.path.join(out, "summary.md"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    summary = [{**setting._asdict(), "runs": [run.result for run in found]} for setting, found in runs.items()]
    with open(os.path.join(out, "summary.json"), "w", encoding="utf-8") as file:
        json.dump(summary, file, indent=4)
    draw(runs, os.path.join(out, "summary.png"))
    print("\n".join(lines))
    print(f"{out}/summary.md, summary.json, summary.png")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("give one folder: synthetic_tasks OUT")
    main(sys.argv[1])
