"""Draw both panels of All-attention Figure 2 (§5.3) from the logs of a recipe to OUT/figure2.png:
``persistent_memory OUT``.

Both panels show the best validation bits per byte, after fine-tuning if there was any (mean and range over seeds): left
by the number of persistent vectors, right by the variant of attention on them.
"""

import glob
import os
import re
import sys
from statistics import mean
from typing import Dict, List

import matplotlib

from fb_fairseq.commands.plot.logs import read_log
from fb_fairseq.drawing import mean_and_range, save_figure

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

VARIANTS = {"attn-split": "attn-split", "head-split": "head-split", "single-head": "single-head", "ff-attn": "FF-attn"}


RUN = re.compile(r"(?P<model>.*?)(-\d+)?(-seed(?P<seed>\d+))?(-finetuned)?\.log")


def best_of_runs(out: str) -> Dict[str, List[float]]:
    """Read the lowest validation bits per byte of each seed, by model (``N512``, ``attn-split``, …), from the logs."""
    best: Dict[str, Dict[str, float]] = {}
    for log in sorted(glob.glob(os.path.join(glob.escape(out), "*.log"))):
        run = RUN.fullmatch(os.path.basename(log))
        curve = read_log(log, "bpb").get("valid")
        if curve:
            seeds = best.setdefault(run["model"], {})
            values = [value for _, value in curve]
            seeds[run["seed"]] = min(values + [seeds[run["seed"]]] if run["seed"] in seeds else values)
    return {model: list(seeds.values()) for model, seeds in best.items()}


def draw(out: str) -> None:
    """Draw both panels from the runs that have been validated."""
    best = best_of_runs(out)
    numbers = sorted(int(model[1:]) for model in best if re.fullmatch(r"N\d+", model))
    variants = [model for model in VARIANTS if model in best]
    if not numbers:
        sys.exit(f"{out}: no model with persistent vectors (N0, N64, …) has been validated yet; run the step train")
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4), sharey=True)
    left.errorbar(range(len(numbers)), *mean_and_range([best[f"N{n}"] for n in numbers]), marker="o", capsize=3)
    left.set_xticks(range(len(numbers)))
    left.set_xticklabels(numbers)
    left.set_xlabel("number of persistent vectors N")
    left.set_ylabel("validation bits per byte")
    if "relative_transformer_lm" in best:
        for axes in (left, right):
            axes.axhline(mean(best["relative_transformer_lm"]), color="grey", linestyle=":", label="Transformer")
        left.legend()
    # Compare the variants with the all-attn model that has the same number of persistent vectors.
    sizes = {size for model in variants for size in [vectors_of(out, model)] if f"N{size}" in best}
    default = [f"N{size}" for size in sorted(sizes)][:1]
    bars = default + variants
    means, around = mean_and_range([best[model] for model in bars])
    right.bar(range(len(bars)), means, yerr=around, color=["C0"] * len(default) + ["C1"] * len(variants))
    right.set_xticks(range(len(bars)))
    right.set_xticklabels([f"all-attn\n({model})" for model in default] + [VARIANTS[model] for model in variants])
    low, high = min(map(min, best.values())), max(map(max, best.values()))
    if low < high:
        left.set_ylim(low - 0.1 * (high - low), high + 0.05 * (high - low))
    for axes in (left, right):
        axes.grid(alpha=0.3, axis="y")
    save_figure(figure, os.path.join(out, "figure2.png"))
    print(f"Wrote {os.path.join(out, 'figure2.png')}")


def vectors_of(out: str, model: str) -> int:
    """Read ``--persistent-memory-size`` from the first line of a run's log, which is its command."""
    logs = sorted(glob.glob(os.path.join(glob.escape(out), f"{model}*.log")))
    log = next(log for log in logs if RUN.fullmatch(os.path.basename(log))["model"] == model)
    with open(log, encoding="utf-8") as file:
        return int(re.findall(r"--persistent-memory-size (\d+)", file.readline())[-1])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("give one folder: persistent_memory OUT")
    draw(sys.argv[1])
