"""Draw a comparison of memory compositions to OUT/composition.png: ``memory_composition OUT LAYERS``.

OUT is the output folder of the recipe; runs with another number of layers are left out.
"""

import json
import os
import statistics
from functools import partial

from fb_fairseq.drawing import Panel, draw_figure, draw_names, model_color
from fb_fairseq.errors import UserError
from fb_fairseq.papers.runner.figures.program import run_main
from fb_fairseq.papers.runner.results import Group, grouped, read_runs

TRANSFORMER = "relative_transformer_lm"
WALK, PTB = "blocked random walk", "character-level PTB"
NAMES = {
    "weighted": "all layers, weighted",
    "average": "all layers, average",
    "same-and-lower": "same and lower layers",
    TRANSFORMER: "previous layer (Transformer)",
}


def walk(out: str, layers: int) -> dict[str, list[float]]:
    """Read the test accuracies of all seeds by composition; empty if the walk has not been run."""
    path = os.path.join(out, "walk", "summary.json")
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        entries = [entry for entry in json.load(file) if entry["layers"] == layers]
    return {entry["model"]: [run["accuracy"] for run in entry["runs"]] for entry in entries}


def char_ptb(out: str, layers: int) -> dict[str, list[float]]:
    """Read the bits per character on the test split by composition, of the fine-tuned model if there is one."""
    folder = os.path.join(out, "char_ptb")
    if not os.path.exists(os.path.join(folder, "results.json")):
        return {}
    return bits_per_character(grouped(read_runs(folder)), layers)


def bits_per_character(groups: list[Group], layers: int) -> dict[str, list[float]]:
    """The bits per character of each composition, of the fine-tuned model if there is one."""
    bits = {}
    for group in sorted(
        groups, key=lambda group: group.identity["finetuned"]
    ):  # the fine-tuned ones replace the others
        if group.identity.get("layers", layers) == layers:  # those of the papers' setting have six, and do not say so
            bits[str(group.identity["model"]).replace("_char_ptb", "")] = group.values("test_bits_per_token")
    return bits


def draw_compositions(axes, values: dict[str, list[float]], task: str, label: str) -> None:
    """Draw a row for each composition: the mean, and the range from the lowest to the highest value."""
    order = [name for name in NAMES if name in values] + sorted(name for name in values if name not in NAMES)
    rows = {NAMES.get(name, name.replace("layer", "layer ")): values[name] for name in order}
    draw_names(axes, rows, [model_color("transformer" if name == TRANSFORMER else "feedback") for name in order])
    axes.set_title(task)
    axes.set_xlabel(label)
    axes.set_ylabel("what a step attends to")


def panels(walked: dict[str, list[float]], bits: dict[str, list[float]]) -> list[Panel]:
    """A panel for each task that has been run."""
    tasks = ((walked, WALK, "accuracy (% of the labels)"), (bits, PTB, "test bits per character"))
    return [
        Panel(partial(draw_compositions, values=values, task=task, label=label))
        for values, task, label in tasks
        if values
    ]


def main(out: str, layers: int) -> None:
    """Draw one panel per task that has been run, and print the values."""
    tasks = {WALK: walk(out, layers), PTB: char_ptb(out, layers)}
    if not any(tasks.values()):
        raise UserError(f"{out}: contains neither walk/summary.json nor char_ptb/results.json; give the recipe's --out")
    for task, values in tasks.items():
        for name, found in values.items():
            seeds = f" ({found})" if len(found) > 1 else ""
            print(f"{task}, {name}: {statistics.mean(found):.3f}{seeds}")
    path = os.path.join(out, "composition.png")
    draw_figure(path, panels(*tasks.values()))
    print(f"Wrote {path}")


if __name__ == "__main__":
    run_main(main)
