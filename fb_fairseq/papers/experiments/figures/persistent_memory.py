"""Draw both panels of All-attention Figure 2 (§5.3) from the logs of a recipe to OUT/figure2.png:
``persistent_memory OUT``.

Both panels show the best validation bits per byte, after fine-tuning if there was any (mean and range over seeds): left
by the number of persistent vectors, right by the variant of attention on them.
"""

import glob
import os
import re
from functools import partial
from statistics import mean

from fb_fairseq.commands.plot.files import read_log
from fb_fairseq.drawing import Panel, draw_figure, draw_names, draw_points, draw_reference, model_color
from fb_fairseq.errors import UserError
from fb_fairseq.papers.runner.options import run_main

BITS = "validation bits per byte"
TRANSFORMER = "relative_transformer_lm"
VARIANTS = {**{name: name for name in ("attn-split", "head-split", "single-head")}, "ff-attn": "FF-attn"}
RUN = re.compile(r"(?P<model>.*?)(-\d+)?(-seed(?P<seed>\d+))?(-finetuned)?\.log")


def best_of_runs(out: str) -> dict[str, list[float]]:
    """Read the lowest validation bits per byte of each seed, by model (``N512``, ``attn-split``, …), from the logs."""
    best: dict[str, dict[str, float]] = {}
    for log in sorted(glob.glob(os.path.join(glob.escape(out), "*.log"))):
        run = RUN.fullmatch(os.path.basename(log))
        curve = read_log(log, "bpb").get("valid")
        if curve:
            seeds = best.setdefault(run["model"], {})
            values = [value for _, value in curve]
            seeds[run["seed"]] = min(values + [seeds[run["seed"]]] if run["seed"] in seeds else values)
    return {model: list(seeds.values()) for model, seeds in best.items()}


def draw_numbers(axes, best: dict[str, list[float]]) -> None:
    """Draw the bits per byte against the number of persistent vectors."""
    numbers = numbers_of(best)
    values = [best[f"N{n}"] for n in numbers]
    draw_points(axes, range(len(numbers)), values, "all-attention", model_color("all-attention"))
    axes.set_xticks(range(len(numbers)), map(str, numbers))
    if TRANSFORMER in best:
        draw_reference(axes, mean(best[TRANSFORMER]), "Transformer", model_color("Transformer"))
    axes.set_xlabel("number of persistent vectors N")
    axes.set_ylabel(BITS)


def draw_variants(axes, best: dict[str, list[float]], same_size: str) -> None:
    """Draw the bits per byte of each variant, beside those of the all-attn model of the same size, if it was trained,
    and of a Transformer."""
    names = {same_size: "all-attn", **VARIANTS, TRANSFORMER: "Transformer"}
    rows = {title: best[model] for model, title in names.items() if model in best}
    draw_names(axes, rows, [model_color(title if title == "Transformer" else "all-attention") for title in rows])
    axes.set_xlabel(BITS)
    axes.set_ylabel(f"variant ({same_size.replace('N', 'N = ')})" if same_size else "variant")


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
    """Draw both panels from the runs that have been validated."""
    best = best_of_runs(out)
    if not numbers_of(best):
        wanted = "model with persistent vectors (N0, N64, …)"
        raise UserError(f"{out}: no {wanted} has been validated yet; run the step train")
    # Compare the variants with the all-attn model that has the same number of persistent vectors.
    sizes = {vectors_of(out, model) for model in VARIANTS if model in best} & set(numbers_of(best))
    path = os.path.join(out, "figure2.png")
    draw_figure(path, panels(best, f"N{min(sizes)}" if sizes else ""))
    print(f"Wrote {path}")


def vectors_of(out: str, model: str) -> int:
    """Read ``--persistent-memory-size`` from the first line of a run's log, which is its command."""
    logs = sorted(glob.glob(os.path.join(glob.escape(out), f"{model}*.log")))
    log = next(log for log in logs if RUN.fullmatch(os.path.basename(log))["model"] == model)
    with open(log, encoding="utf-8") as file:
        return int(re.findall(r"--persistent-memory-size (\d+)", file.readline())[-1])


if __name__ == "__main__":
    run_main(main)
