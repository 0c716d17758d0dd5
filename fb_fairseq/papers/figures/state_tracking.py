"""Compare the runs of a state-tracking recipe: ``state_tracking OUT RECIPE``.

Prints a table: of each model the largest size up to which at least 90 % are right, the accuracy at some sizes, and the
parameters. Reads OUT/*/result.json and writes

    OUT/results.json  all runs
    OUT/accuracy.png  accuracy by position (recall: by number of pairs), one line per model

Of several learning rates, the one with the best accuracy on validation data counts, averaged over seeds.
"""

import glob
import json
import os
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from statistics import mean, median

from fb_fairseq.drawing.figure import Panel, draw_figure
from fb_fairseq.drawing.marks import draw_band, draw_reference, explain_range, write_out
from fb_fairseq.drawing.models import styles
from fb_fairseq.drawing.style import GREY
from fb_fairseq.errors import UserError
from fb_fairseq.papers.results.program import run_main
from fb_fairseq.papers.results.record import HERE, read_record
from fb_fairseq.papers.results.words import in_words, markdown, spread
from fb_fairseq.papers.toy_tasks.word_problem import group_named

Runs = Mapping[str, list[dict]]  # the runs of each setting, by its name
POINTS = 120  # of a line
SAID = ("span", "layers", "curriculum")  # first, and without their names
SAME = "Recurrent Transformer"  # that of the memory "same" (arXiv 2604.21215)
SHOWN = (0.5, 1, 4, 16)  # sizes in the table, as multiples of the longest in training


def read_results(out: str, recipe: str) -> dict[str, dict]:
    """The result of each run, by its name."""
    record = read_record(out)
    steps = record["steps"] if record else {}
    found = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(out), "*", "result.json"))):
        name = os.path.basename(os.path.dirname(path))
        entry = steps.get(f"{HERE}/{name}/result.json", {})
        if "settings" not in entry:
            raise UserError(f"{out}/{name}: was not trained by the recipe; move it to another folder")
        made = {"recipe": recipe, "settings": entry["settings"], "commit": entry["commit"]}
        found[name] = {**json.loads(Path(path).read_text()), **made}
    if not found:
        raise UserError(f"{out}: contains no results of runs; give the --out folder of a recipe")
    return found


def title_of(run: dict) -> str:
    """The name of a run's model, with its memory composition unless that is the usual one."""
    memory = run["memory_composition"]
    if memory == "same":
        return SAME
    return run["title"] if memory == "weighted" else f"{run['title']}, memory {memory}"


def apart(own: Mapping[str, str], alike: Iterable[Mapping[str, str]]) -> list[str]:
    """The values in which a setting differs from others, each in a few words.

    Args:
        own: the setting.
        alike: all settings with the same title.
    """
    found = []
    for name in dict.fromkeys([*SAID, *own]):
        if name in own and any(other.get(name) != own[name] for other in alike):
            found.append(in_words(name, own[name]) if name in SAID else f"{name} {own[name]}")
    return found


def best_results(runs: Iterable[dict]) -> Runs:
    """The runs of each setting at its best learning rate, by seed; those that are right on the longest sequences come
    first. Names of several settings of a model say in what these differ.
    """
    found: dict[tuple, dict[float, list[dict]]] = {}
    titles: dict[tuple, str] = {}
    for run in runs:
        setting = tuple(sorted((name, value) for name, value in run["settings"].items() if name != "lr"))
        found.setdefault(setting, {}).setdefault(run["lr"], []).append(run)
        titles[setting] = title_of(run)
    best = {}
    for setting, rates in found.items():
        alike = [dict(other) for other in found if titles[other] == titles[setting]]
        name = ", ".join([titles[setting], *apart(dict(setting), alike)])
        rate = max(rates, key=lambda rate: mean(run["valid_accuracy"] for run in rates[rate]))
        seeds = {run["seed"]: run for run in reversed(rates[rate])}  # each counts once
        best[name] = [seeds[seed] for seed in sorted(seeds)]
    return dict(sorted(best.items(), key=lambda item: -median(run["longest_good"] for run in item[1])))


def table(settings: Runs) -> list[str]:
    """A table in Markdown: a row for each setting, with means over seeds."""
    first = next(iter(settings.values()))[0]
    sizes = [int(factor * first["longest"]) for factor in SHOWN if factor * first["longest"] in first["sizes"]]
    columns = ["model", "parameters", "trained up to", "≥ 90% up to", *(f"% at {size}" for size in sizes)]
    counted = all("flawless" in run for runs in settings.values() for run in runs)  # (since 2026-11-28)
    if counted:
        columns += ["% without a mistake", "slips per step"]
    rows = []
    for name, runs in settings.items():
        row = [name, f"{runs[0]['parameters']:,}"]
        row += [" / ".join(str(run[what]) for run in runs) for what in ("learned", "longest_good")]
        tested = runs[0]["sizes"]  # the same for all seeds
        for size in sizes:
            found = [100 * run["accuracy"][tested.index(size)] for run in runs] if size in tested else []
            row.append(spread(found, "accuracy"))
        if counted:
            row.append(spread([100 * run["flawless"] for run in runs], "accuracy"))
            row.append(f"{mean(run['slips'] for run in runs):.1e}")
        rows.append([*row, f"{runs[0]['lr']:g}", str(len(runs))])
    return markdown([*columns, "learning rate", "seeds"], rows)


def draw_accuracy(axes, settings: Runs) -> None:
    """Draw the accuracy of each setting: the mean over seeds, on a band from the lowest to the highest."""
    style = styles(settings)
    for name, runs in settings.items():
        sizes = runs[0]["sizes"]
        places = sorted({round(len(sizes) ** (i / POINTS)) - 1 for i in range(POINTS + 1)})
        values = [[100 * run["accuracy"][place] for run in runs] for place in places]
        draw_band(axes, [sizes[place] for place in places], values, name, *style[name])
    explain_range(axes, settings.values())
    first = next(iter(settings.values()))[0]
    axes.axvline(first["longest"], color=GREY, linestyle="--", label=f"longest in training: {first['longest']}")
    axes.set(xlabel="number of pairs", ylabel="right values (%)", ylim=(-2, 102))
    if first["task"] == "word_problem":
        chance = 100 / len(group_named(first["group"]).elements)
        draw_reference(axes, chance, f"chance: {chance:.1f}%")
        axes.set(xlabel="position in the sequence (elements)", ylabel="correct products (%)")
    axes.set_xscale("log", base=2)
    write_out(axes.xaxis)


def main(out: str, recipe: str) -> None:
    """Compare the runs in the folder ``out``."""
    runs = read_results(out, recipe)
    settings = best_results(runs.values())
    Path(out, "results.json").write_text(json.dumps(runs))
    draw_figure(os.path.join(out, "accuracy.png"), [Panel(partial(draw_accuracy, settings=settings))])
    print("\n".join(table(settings)))


if __name__ == "__main__":
    run_main(main)
