"""Compare the runs of a state-tracking recipe: ``state_tracking OUT``.

Reads OUT/*/result.json and writes

    OUT/results.json  all runs
    OUT/results.md    a table: of each model the largest size up to which at least 90 % are right, the accuracy at some
                      sizes, parameters
    OUT/accuracy.png  accuracy by position (recall: by number of pairs), one line per model
    OUT/curves.png    accuracy in training, on sequences that grow, one line per run

Of several learning rates, the one with the best accuracy on validation data counts, averaged over seeds.
"""

import glob
import json
import os
import re
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from statistics import mean, median

from fb_fairseq.drawing import Panel, colors, draw_band, draw_curve, draw_figure, explain_curves, mark_x, write_out
from fb_fairseq.errors import UserError
from fb_fairseq.papers.runner.options import run_main
from fb_fairseq.papers.runner.results import spread
from fb_fairseq.papers.runner.shell import read

Settings = Mapping[str, list[dict]]  # the runs of each setting, by its name
POINTS = 120  # of a line
ENTRY = re.compile(r"^update ([\d,]+) of .*, ([\d.]+)% right", re.MULTILINE)  # in the log of a run
SHOWN = (0.5, 1, 4, 16)  # sizes in the table, as multiples of the longest in training


def read_results(out: str) -> dict[str, dict]:
    """The result of each run, by its name."""
    found = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(out), "*", "result.json"))):
        with open(path) as file:
            run = json.load(file)
        found[os.path.basename(os.path.dirname(path))] = {"recipe": run["task"], **run}
    if not found:
        raise UserError(f"{out}: contains no results of runs; give the --out folder of a recipe")
    return found


def best_results(runs: Iterable[dict]) -> Settings:
    """The runs of each setting (model, memory composition, span, layers) at its best learning rate, by seed; those that
    are right on the longest sequences come first."""
    found: dict[tuple, dict[float, list[dict]]] = {}
    for run in runs:
        key = run["model"], run["memory_composition"], run["span"], run["layers"], run.get("curriculum", "growing")
        found.setdefault(key, {}).setdefault(run["lr"], []).append(run)
    best = {}
    for key, rates in found.items():
        (_, memory, span, layers, curriculum), first = key, next(iter(rates.values()))[0]
        alike = [other for other in found if other[:2] == key[:2]]
        name = first["title"] + (f", memory {memory}" if memory != "weighted" else "")
        name += f", span {span}" if len({other[2] for other in alike}) > 1 else ""
        name += f", {layers} layer{'s' * (layers > 1)}" if len({other[3] for other in alike}) > 1 else ""
        name += f", {curriculum} lengths" if len({other[4] for other in found}) > 1 else ""
        rate = max(rates, key=lambda rate: mean(run["valid_accuracy"] for run in rates[rate]))
        best[name] = sorted(rates[rate], key=lambda run: run["seed"])
    return dict(sorted(best.items(), key=lambda item: -median(run["longest_good"] for run in item[1])))


def table(settings: Settings) -> list[str]:
    """A table in Markdown: a row for each setting, with means over seeds."""
    first = next(iter(settings.values()))[0]
    sizes = [int(factor * first["longest"]) for factor in SHOWN if factor * first["longest"] in first["sizes"]]
    cells = ["model", "parameters", "trained up to", "≥ 90% up to", *(f"% at {size}" for size in sizes)]
    counted = "flawless" in first  # not in results of before 2026-11-28
    cells += ["% without a mistake", "slips per step"] * counted
    rows = [cells + ["learning rate", "seeds"], ["---"] + ["---:"] * (len(cells) + 1)]
    for name, runs in settings.items():
        row = [name, f"{runs[0]['parameters']:,}"]
        row += [" / ".join(str(run[what]) for run in runs) for what in ("learned", "longest_good")]
        for size in sizes:
            row.append(spread([100 * run["accuracy"][run["sizes"].index(size)] for run in runs], "accuracy"))
        if counted:
            row.append(spread([100 * run["flawless"] for run in runs], "accuracy"))
            row.append(f"{mean(run['slips'] for run in runs):.1e}")
        rows.append([*row, f"{runs[0]['lr']:g}", str(len(runs))])
    return [f"| {' | '.join(row)} |" for row in rows]


def draw_accuracy(axes, settings: Settings) -> None:
    """Draw the accuracy of each setting: the mean over seeds, on a band from the lowest to the highest."""
    color = colors(settings)
    for name, runs in settings.items():
        sizes = runs[0]["sizes"]
        places = sorted({round(len(sizes) ** (i / POINTS)) - 1 for i in range(POINTS + 1)} & set(range(len(sizes))))
        values = [[100 * run["accuracy"][place] for run in runs] for place in places]
        draw_band(axes, [sizes[place] for place in places], values, name, color[name])
    first = next(iter(settings.values()))[0]
    mark_x(axes, first["longest"], "longest in training")
    axes.set_xscale("log", base=2)
    write_out(axes.xaxis)
    axes.set_xlabel("number of pairs" if first["task"] == "recall" else "position in the sequence (elements)")
    axes.set_ylabel("accuracy (%)")
    axes.set_ylim(-2, 102)


def read_curves(out: str) -> dict[str, list[tuple[int, float]]]:
    """The accuracy on the last label of training sequences by update, from the log of each run."""
    curves = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(out), "*-seed*.log"))):
        found = ENTRY.findall(read(path))
        if found:
            name = os.path.basename(path)[: -len(".log")]
            curves[name] = [(int(updates.replace(",", "")), float(right)) for updates, right in found]
    return curves


def draw_training(axes, curves: dict[str, list[tuple[int, float]]]) -> None:
    """Draw the learning curves."""
    color = colors(curves)
    for name, curve in curves.items():
        draw_curve(axes, curve, color[name], training=True, continues=False)
    explain_curves(axes, color, {})
    axes.set_xlabel("updates")
    axes.set_ylabel("last labels right (%), as sequences grow")
    axes.set_ylim(-2, 102)


def main(out: str) -> None:
    """Compare the runs in the folder ``out``."""
    runs = read_results(out)
    settings = best_results(runs.values())
    lines = table(settings)
    Path(out, "results.md").write_text("\n".join([*lines, ""]), encoding="utf-8")
    Path(out, "results.json").write_text(json.dumps(runs))
    draw_figure(os.path.join(out, "accuracy.png"), [Panel(partial(draw_accuracy, settings=settings))])
    curves = read_curves(out)
    if curves:
        draw_figure(os.path.join(out, "curves.png"), [Panel(partial(draw_training, curves=curves))])
    print("\n".join([*lines, f"{out}/results.json, results.md, accuracy.png"]))


if __name__ == "__main__":
    run_main(main)
