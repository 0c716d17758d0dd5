"""Draw both panels of All-attention Figure 2 (§5.3) from the results of a recipe to OUT/figure2.png:
``persistent_memory OUT``.

Both panels show the best validation bits per byte, after fine-tuning if there was any (mean and range over seeds): left
by the number of persistent vectors, right by the variant of attention on them.
"""

import os
import re
from collections.abc import Iterable
from functools import partial
from statistics import mean

from fb_fairseq.drawing.figure import Panel, draw_figure
from fb_fairseq.drawing.marks import draw_names, draw_points, draw_reference, explain_range
from fb_fairseq.drawing.models import model_color
from fb_fairseq.errors import UserError
from fb_fairseq.papers.figures.names import settings_apart
from fb_fairseq.papers.results.program import run_main
from fb_fairseq.papers.results.runs import grouped, read_runs

BITS = "validation bits per byte"
TRANSFORMER = "relative_transformer_lm"
VARIANTS = {  # their names in the paper, and what they are
    "attn-split": "attn-split\n(a softmax each)",
    "head-split": "head-split\n(half of the heads each)",
    "single-head": "single-head\n(vectors for all heads)",
    "ff-attn": "FF-attn\n(a sublayer of its own)",
}


def best_of_runs(runs: Iterable[dict]) -> dict[str, list[float]]:
    """The lowest validation bits per byte of each seed, by model (``N512``, ``attn-split``, …). All runs of a model
    must have the same settings, but for fine-tuning.
    """
    best: dict[str, dict[int, float]] = {}
    settings: dict[str, list[str]] = {}
    groups = grouped(runs)
    for group, words in zip(groups, settings_apart(groups)):
        model = str(group.identity["model"])
        if settings.setdefault(model, words) != words:
            raise UserError(
                f"{group.runs[0]['path']}: {model} was trained with different settings "
                f"({', '.join([*settings[model], *words])}); move the runs of one of them to another folder"
            )
        seeds = best.setdefault(model, {})
        for run in group.runs:
            value = run["dev_bits_per_token"]
            seeds[run["seed"]] = min(value, seeds.get(run["seed"], value))
    return {model: list(seeds.values()) for model, seeds in best.items()}


def draw_numbers(axes, best: dict[str, list[float]]) -> None:
    """Draw the bits per byte against the number of persistent vectors."""
    numbers = numbers_of(best)
    values = [best[f"N{n}"] for n in numbers]
    draw_points(axes, range(len(numbers)), values, "all-attention", model_color("all-attention"))
    axes.set_xticks(range(len(numbers)), map(str, numbers))
    if TRANSFORMER in best:
        draw_reference(axes, mean(best[TRANSFORMER]), "Transformer", model_color("Transformer"))
    explain_range(axes, values)
    axes.set_xlabel("number of persistent vectors N")
    axes.set_ylabel(BITS)


def draw_variants(axes, best: dict[str, list[float]], same_size: str) -> None:
    """Draw the bits per byte of each variant, beside those of the all-attn model of the same size, if it was trained,
    and of a Transformer.

    Args:
        best: bits per byte of each seed, by model.
        same_size: the all-attn model that has as many persistent vectors as the variants.
    """
    names = {same_size: "all-attn\n(one softmax for both)", **VARIANTS, TRANSFORMER: "Transformer"}
    rows = {title: best[model] for model, title in names.items() if model in best}
    draw_names(axes, rows, [model_color(title if title == "Transformer" else "all-attention") for title in rows])
    axes.set_xlabel(BITS)
    axes.set_ylabel(f"variant ({same_size.replace('N', 'N = ')})")


def numbers_of(best: dict[str, list[float]]) -> list[int]:
    """The numbers of persistent vectors that were trained."""
    return sorted(int(model[1:]) for model in best if re.fullmatch(r"N\d+", model))


def panels(best: dict[str, list[float]], same_size: str) -> list[Panel]:
    """Both panels, the right one if a variant has been validated; see ``draw_variants``."""
    drawn = [Panel(partial(draw_numbers, best=best))]
    if any(model in best for model in VARIANTS):
        drawn.append(Panel(partial(draw_variants, best=best, same_size=same_size)))
    return drawn


def main(out: str) -> None:
    """Draw both panels."""
    runs = [run for run in read_runs(out) if "dev_bits_per_token" in run]
    best = best_of_runs(runs)
    if not numbers_of(best):
        raise UserError(f"{out}: no result of a model with persistent vectors (N0, N64, …); train one")
    # Compare the variants with the all-attn model that has as many persistent vectors as the smallest of them.
    sizes = [int(run["settings"]["persistent_memory_size"]) for run in runs if run["model"] in VARIANTS]
    draw_figure(os.path.join(out, "figure2.png"), panels(best, f"N{min(sizes, default='')}"))


if __name__ == "__main__":
    run_main(main)
