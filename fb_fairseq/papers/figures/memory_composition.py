"""Draw a comparison of memory compositions to OUT/composition.png: ``memory_composition OUT LAYERS``.

OUT is the output folder of the recipe; runs whose results name another number of layers are left out.
"""

import os
import re
from collections.abc import Iterable, Mapping
from functools import partial

from fb_fairseq.drawing.figure import Panel, draw_figure
from fb_fairseq.drawing.marks import draw_names
from fb_fairseq.drawing.models import model_color
from fb_fairseq.errors import UserError
from fb_fairseq.papers.figures.names import settings_apart
from fb_fairseq.papers.results.program import run_main
from fb_fairseq.papers.results.runs import Group, grouped, read_runs

Values = Mapping[tuple[str, ...], list[float]]  # of all seeds, by composition and what else sets them apart
TRANSFORMER = "relative_transformer_lm"
NAMES = {
    "weighted": "all layers, weighted",
    "average": "all layers, average",
    "same-and-lower": "same and lower layers",
    TRANSFORMER: "previous layer (Transformer)",
    "layer0": "embedding (layer 0)",
}
TASKS = {  # by folder: the title, the metric and its name
    "walk": ("blocked random walk", "accuracy", "accuracy (% of the labels)"),
    "char_ptb": ("character-level PTB", "test_bits_per_token", "test bits per character"),
}


def values_of(groups: Iterable[Group], metric: str, layers: int) -> Values:
    """The values of each composition that has the metric, of the fine-tuned model if there is one."""
    # (Those of the papers' setting have six layers, and do not say so.)
    own = [group for group in groups if group.identity.get("layers", layers) == layers]
    own.sort(key=lambda group: bool(group.identity.get("finetuned")))
    found = {}
    for group, words in zip(own, settings_apart(own)):
        name = str(group.identity["model"]).replace("_char_ptb", "")
        if values := group.values(metric):
            found[(name, *words)] = values
    return found


def draw_compositions(axes, values: Values, task: str, label: str) -> None:
    """Draw a row for each composition: the mean, and the range from the lowest to the highest value."""
    rows = {}
    colors = []
    for key in sorted(values, key=lambda key: ([key[0] != name for name in NAMES], key)):  # others come last
        name, *words = key
        rows[", ".join([NAMES.get(name, re.sub(r"^layer(\d)", r"layer \1", name)), *words])] = values[key]
        colors.append(model_color("transformer" if name == TRANSFORMER else "feedback"))
    draw_names(axes, rows, colors)
    axes.set_title(task)
    axes.set_xlabel(label)
    axes.set_ylabel("what a step attends to")


def panels(found: Mapping[str, Values]) -> list[Panel]:
    """A panel for each of ``TASKS`` that has been run."""
    return [
        Panel(partial(draw_compositions, values=found[task], task=title, label=label))
        for task, (title, _, label) in TASKS.items()
        if found.get(task)
    ]


def main(out: str, layers: int) -> None:
    """Draw one panel per task that has been run."""
    found = {}
    for task, (_, metric, _) in TASKS.items():
        folder = os.path.join(out, task)
        if os.path.isdir(folder):
            found[task] = values_of(grouped(read_runs(folder)), metric, layers)
    if not any(found.values()):
        raise UserError(f"{out}: contains results of neither walk nor char_ptb; give the recipe's --out")
    draw_figure(os.path.join(out, "composition.png"), panels(found))


if __name__ == "__main__":
    run_main(main)
