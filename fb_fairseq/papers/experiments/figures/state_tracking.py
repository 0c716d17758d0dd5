"""Compare the runs of a state-tracking recipe: ``state_tracking OUT``.

Reads OUT/*/result.json and OUT/speed.json, and writes

    OUT/results.json  of each model: the largest size up to which at least 90 % are right, the accuracy at some sizes,
                      parameters, speed; all runs under ``all``
    OUT/results.md    the same as a table
    OUT/accuracy.png  accuracy by position (recall: by number of pairs), one line per model
    OUT/curves.png    accuracy in training, on sequences that grow, one line per run

Of several learning rates, the one with the best accuracy on validation data counts, averaged over seeds.
"""

import glob
import json
import os
import re
from functools import partial
from statistics import mean, median, stdev

from fb_fairseq.drawing import Panel, colors, draw_band, draw_curve, draw_figure, explain_curves, mark_x, write_out
from fb_fairseq.errors import UserError
from fb_fairseq.papers.runner.figures.program import run_main

Key = tuple[str, str, int, int]
POINTS = 120  # of a line
ENTRY = re.compile(r"^update ([\d,]+) of .*, ([\d.]+)% right", re.MULTILINE)  # in the log of a run
SHOWN = (0.5, 1, 4, 16)  # sizes in the table, as multiples of the longest in training


def read_results(out: str) -> dict[Key, list[dict]]:
    """The runs of each setting (model, memory composition, span, layers) at its best learning rate, by seed."""
    runs = []
    for path in sorted(glob.glob(os.path.join(glob.escape(out), "*", "result.json"))):
        with open(path) as file:
            runs.append(json.load(file))
    if not runs:
        raise UserError(f"{out}: contains no results of runs; give the --out folder of a recipe")
    return best_results(runs)


def best_results(runs: list[dict]) -> dict[Key, list[dict]]:
    """The same, of these runs."""
    found: dict[Key, dict[float, list[dict]]] = {}
    for run in runs:
        key = run["model"], run["memory_composition"], run["span"], run["layers"]
        found.setdefault(key, {}).setdefault(run["lr"], []).append(run)
    best = {}
    for key, rates in found.items():
        rate = max(rates, key=lambda rate: mean(run["valid_accuracy"] for run in rates[rate]))
        best[key] = sorted(rates[rate], key=lambda run: run["seed"])
    return best


def label(key: Key, results: dict[Key, list[dict]]) -> str:
    """Name of a setting: what distinguishes it."""
    model, memory, span, layers = key
    name = results[key][0]["title"]
    if memory != "weighted":
        name += f", memory {memory}"
    same = [other for other in results if other[:2] == key[:2]]
    if len({other[2] for other in same}) > 1:
        name += f", span {span}"
    if len({other[3] for other in same}) > 1:
        name += f", {layers} layer{'s' if layers > 1 else ''}"
    return name


def summarise(name: str, runs: list[dict], speed: dict) -> dict:
    """The entry of a setting in results.json."""
    first = runs[0]
    sizes, longest = first["sizes"], first["longest"]
    places = {f"{factor:g}x": sizes.index(factor * longest) for factor in SHOWN if factor * longest in sizes}
    entry = {
        "name": name,
        **{key: first[key] for key in ("model", "memory_composition", "span", "layers", "parameters", "lr", "updates")},
        "longest": longest,
        "seeds": [run["seed"] for run in runs],
        "learned": [run["learned"] for run in runs],
        "longest_good": [run["longest_good"] for run in runs],
        "accuracy": {at: [run["accuracy"][place] for run in runs] for at, place in places.items()},
        "seconds": round(mean(run["seconds"] for run in runs)),
        "hardware": first["hardware"],
    }
    return {**entry, **speed.get(first["model"], {})}


def percent(values: list[float]) -> str:
    """Mean and sample standard deviation in percent."""
    spread = f" ± {100 * stdev(values):.2f}" if len(values) > 1 else ""
    return f"{100 * mean(values):.2f}{spread}"


def table(settings: list[dict]) -> list[str]:
    """A table in Markdown: a row for each setting, with means over seeds."""
    first = settings[0]
    sizes = [round(float(at[:-1]) * first["longest"]) for at in first["accuracy"]]
    cells = ["model", "parameters", "trained up to", "≥ 90% up to", *(f"% at {size}" for size in sizes)]
    rows = [cells + ["learning rate", "seeds"], ["---"] + ["---:"] * (len(cells) + 1)]
    for entry in settings:
        row = [entry["name"], f"{entry['parameters']:,}"]
        row += [" / ".join(map(str, entry[name])) for name in ("learned", "longest_good")]
        row += [percent(values) for values in entry["accuracy"].values()]
        rows.append([*row, f"{entry['lr']:g}", str(len(entry["seeds"]))])
    return [f"| {' | '.join(row)} |" for row in rows]


def draw_accuracy(axes, results: dict[Key, list[dict]]) -> None:
    """Draw the accuracy of each setting: the mean over seeds, on a band from the lowest to the highest."""
    order = sorted(results, key=lambda key: -median(run["longest_good"] for run in results[key]))
    color = colors(label(key, results) for key in order)
    for key in order:
        runs = results[key]
        sizes = runs[0]["sizes"]
        places = sorted({round(len(sizes) ** (i / POINTS)) - 1 for i in range(POINTS + 1)} & set(range(len(sizes))))
        values = [[100 * run["accuracy"][place] for run in runs] for place in places]
        name = label(key, results)
        draw_band(axes, [sizes[place] for place in places], values, name, color[name])
    first = next(iter(results.values()))[0]
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
        with open(path, encoding="utf-8", errors="replace") as file:
            found = ENTRY.findall(file.read())
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
    results = read_results(out)
    speed: dict[str, dict] = {}
    path = os.path.join(out, "speed.json")
    if os.path.exists(path):
        with open(path) as file:
            speed = json.load(file)["steps_per_second"]
    settings = [summarise(label(key, results), runs, speed) for key, runs in results.items()]
    settings.sort(key=lambda entry: -median(entry["longest_good"]))
    for entry in settings:
        at = ", ".join(f"{100 * mean(values):.1f} % at {size}" for size, values in entry["accuracy"].items())
        good = "/".join(map(str, entry["longest_good"]))
        number = len(entry["seeds"])
        print(f"{entry['name']}: 90 % up to {good}; {at} ({number} seed{'s' if number > 1 else ''})")
    with open(os.path.join(out, "results.md"), "w") as file:
        file.writelines(f"{line}\n" for line in table(settings))
    with open(os.path.join(out, "results.json"), "w") as file:
        json.dump({"settings": settings, "all": [run for runs in results.values() for run in runs]}, file)
    draw_figure(os.path.join(out, "accuracy.png"), [Panel(partial(draw_accuracy, results=results))])
    curves = read_curves(out)
    if curves:
        draw_figure(os.path.join(out, "curves.png"), [Panel(partial(draw_training, curves=curves))])
    print(f"{out}/results.json, results.md, accuracy.png")


if __name__ == "__main__":
    run_main(main)
