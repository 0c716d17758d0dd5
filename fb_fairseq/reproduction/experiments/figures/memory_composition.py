"""Draw a comparison of memory compositions to OUT/composition.png: ``memory_composition OUT LAYERS``.

OUT is the output folder of the recipe; runs with another number of layers are left out.
"""

import json
import os
import statistics
import sys
from typing import Dict, List

import matplotlib

from fb_fairseq.drawing import mean_and_range, save_figure
from fb_fairseq.recipes.results import grouped, read_runs

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

NAMES = {
    "weighted": "all layers,\nweighted",
    "average": "all layers,\naverage",
    "same-and-lower": "same and\nlower layers",
    "relative_transformer_lm": "previous layer\n(Transformer)",
}


def walk(out: str, layers: int) -> Dict[str, List[float]]:
    """Read the test accuracies of all seeds by composition; empty if the walk has not been run."""
    path = os.path.join(out, "walk", "summary.json")
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        entries = [entry for entry in json.load(file) if entry["layers"] == layers]
    return {entry["model"]: [run["accuracy"] for run in entry["runs"]] for entry in entries}


def char_ptb(out: str, layers: int) -> Dict[str, List[float]]:
    """Read the bits per character on the test split by composition, of the fine-tuned model if there is one."""
    folder = os.path.join(out, "char_ptb")
    if not os.path.exists(os.path.join(folder, "results.json")):
        return {}
    bits = {}
    groups = grouped(read_runs(folder))
    for group in sorted(
        groups, key=lambda group: group.identity["finetuned"]
    ):  # the fine-tuned ones replace the others
        if group.identity.get("layers", layers) == layers:  # those of the papers' setting have six, and do not say so
            bits[str(group.identity["model"]).replace("_char_ptb", "")] = group.values("test_bits_per_token")
    return bits


def draw_bars(axes, values: Dict[str, List[float]], label: str) -> None:
    """Draw a bar per composition: the mean, and the range from the lowest to the highest value."""
    order = [name for name in NAMES if name in values] + sorted(name for name in values if name not in NAMES)
    means, around = mean_and_range([values[name] for name in order])
    colors = ["C0" if name in NAMES else "C1" for name in order]
    axes.bar(range(len(order)), means, yerr=around, capsize=3, color=colors)
    axes.set_xticks(range(len(order)))
    axes.set_xticklabels([NAMES.get(name, name.replace("layer", "layer ")) for name in order], rotation=45, ha="right")
    axes.set_ylabel(label)
    axes.grid(alpha=0.3, axis="y")


def main(out: str, layers: int) -> None:
    """Draw one panel per task that has been run, and print the values."""
    panels = [
        (walk(out, layers), "blocked random walk: accuracy (%)"),
        (char_ptb(out, layers), "character-level PTB: bits per character"),
    ]
    panels = [(values, label) for values, label in panels if values]
    if not panels:
        sys.exit(f"{out}: contains neither walk/summary.json nor char_ptb/results.json; give the recipe's --out")
    figure, all_axes = pyplot.subplots(1, len(panels), figsize=(6 * len(panels), 4), squeeze=False)
    for axes, (values, label) in zip(all_axes[0], panels):
        draw_bars(axes, values, label)
        if "bits" in label:  # the differences are small: do not start the axis at 0
            numbers = [number for found in values.values() for number in found]
            axes.set_ylim(min(numbers) - 0.1, max(numbers) + 0.05)
        for name, found in values.items():
            seeds = f" ({found})" if len(found) > 1 else ""
            print(f"{label.split(':')[0]}, {name}: {statistics.mean(found):.3f}{seeds}")
    save_figure(figure, os.path.join(out, "composition.png"))
    print(f"Wrote {os.path.join(out, 'composition.png')}")


if __name__ == "__main__":
    if len(sys.argv) != 3 or not sys.argv[2].isdigit():
        sys.exit("give one folder and the number of layers: memory_composition OUT LAYERS")
    main(sys.argv[1], int(sys.argv[2]))
