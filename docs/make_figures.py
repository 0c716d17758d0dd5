"""Draw the figures of the pages: docs/figures/*.png, and those of examples/figures/ whose results are in
examples/results/. (The others are learning curves; their runs' logs are not kept.)

python docs/make_figures.py [FOLDER]

With FOLDER, they are written there.
"""

import json
import pathlib
import sys
from functools import partial

from PIL import Image

from fb_fairseq.commands.plot import panels as plots
from fb_fairseq.drawing.figure import Panel, draw_figure
from fb_fairseq.drawing.marks import draw_names, draw_reference
from fb_fairseq.drawing.models import model_color, model_name
from fb_fairseq.drawing.style import BLUE, DPI, INK, VERMILLION
from fb_fairseq.papers.figures import against, memory_composition, persistent_memory, state_tracking
from fb_fairseq.papers.results.runs import Group, grouped, read_runs

REPOSITORY = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(REPOSITORY / "docs"))

from diagrams import draw_feedback, draw_streams, draw_transformer  # noqa: E402

RESULTS = REPOSITORY / "examples/results"
FEEDBACK, TRANSFORMER, ATTENTION = "feedback_transformer_lm", "relative_transformer_lm", "all_attention_lm"
ORDER = ("Feedback Transformer", "Transformer", "LSTM")
UPDATES = (1000, 4000, 16000)
PASSES = {
    "PTB, characters": ("text (letters of Penn Treebank)", BLUE),
    "walk": ("the blocked random walk (where is the agent?)", VERMILLION),
    "products in A5": ("products of permutations of five things (group A5)", INK),
}


def word_problem() -> list[Panel]:
    """Right products by position on A5: five models, at the best of five learning rates, or at the only one."""
    tuned, others = (
        list(json.loads((RESULTS / f"state_tracking/{name}/results.json").read_text()).values())
        for name in ("A5_learning_rates", "A5")
    )
    runs = [run for run in tuned if run["model"] != "slstm"] + [run for run in others if run["model"] == "rwkv"]
    return [Panel(partial(state_tracking.draw_accuracy, settings=state_tracking.best_results(runs)))]


def groups_of(folder: str, **identity) -> list[Group]:
    """The groups of runs in a folder of results, of this identity."""
    groups = grouped(read_runs(str(RESULTS / folder)))
    return [group for group in groups if identity.items() <= group.identity.items()]


def labelled(panels: list[Panel], **labels: str) -> list[Panel]:
    """The panels with other labels: arguments of ``axes.set``."""

    def show(axes, panel: Panel) -> None:
        panel.draw(axes)
        axes.set(**labels)
        axes.minorticks_off()

    return [panel._replace(draw=partial(show, panel=panel)) for panel in panels]


def char_ptb_depth() -> list[Panel]:
    """Bits per character against depth, with each model's learning rate of the table; the one-layer all-attention
    network is far above."""
    groups = groups_of("char_ptb_learning_rate_0.004", model=FEEDBACK)
    groups += groups_of("char_ptb_learning_rate_0.004", model=TRANSFORMER)
    groups += [group for group in groups_of("char_ptb", model=ATTENTION) if group.identity["layers"] > 1]
    return labelled(against.panels(groups, "layers", ["test_bits_per_token"]), ylabel="test bits per character")


def char_ptb_updates() -> list[Panel]:
    """Bits per character against updates, two layers, before fine-tuning."""
    groups = [
        group
        for folder in ("char_ptb_1000_updates", "char_ptb_learning_rate_0.004", "char_ptb_16000_updates")
        for model in (FEEDBACK, TRANSFORMER)
        for group in groups_of(folder, model=model, layers=2, finetuned=False)
    ]
    panels = against.panels(groups, "num_updates", ["test_bits_per_token"])
    return labelled(
        panels, ylabel="test bits per character", xlabel="updates", xscale="log", xticks=UPDATES, xticklabels=UPDATES
    )


def enwik8_depth() -> list[Panel]:
    """Bits per byte against depth, with each model's learning rate of the table."""
    groups = groups_of("enwik8_learning_rate_0.008", model=FEEDBACK, layers=2)
    groups += groups_of("enwik8_learning_rate_0.004", model=FEEDBACK, layers=4)
    groups += groups_of("enwik8_learning_rate_0.004", model=TRANSFORMER, layers=2)
    groups += groups_of("enwik8", model=TRANSFORMER, layers=4)
    return labelled(against.panels(groups, "layers", ["test_bits_per_token"]), ylabel="test bits per byte")


def multi30k_depth() -> list[Panel]:
    """BLEU and loss against the decoder's depth, of the models trained from scratch."""
    groups = [group for group in groups_of("multi30k") if group.identity["model"] != "initialised"]
    panels = against.panels(groups, "layers", ["sacrebleu", "dev_nll"])
    return labelled(panels, xlabel="number of decoder layers")


def by_model(folders: dict[str, str], metric: str, label: str) -> list[Panel]:
    """A row for each model, and a panel for each folder of results. ``folders``: these, by the panels' titles."""

    def show(axes, folder: str) -> None:
        values: dict[str, list[float]] = {}
        for group in sorted(groups_of(folder), key=lambda group: ORDER.index(model_name(group.identity["model"]))):
            values.setdefault(model_name(group.identity["model"]), []).extend(group.values(metric))
        draw_names(axes, values, list(map(model_color, values)))
        axes.set_xlabel(label)

    return [Panel(partial(show, folder=folder), title=title) for title, folder in folders.items()]


def toy_tasks() -> list[Panel]:
    """Accuracy on the random walk and on programs."""
    folders = {"random walk on 8 × 8 cells": "random_walk_8x8", "programs of 100 statements": "algorithmic_100"}
    return labelled(by_model(folders, "accuracy", "right labels (%)"), xlim=(0, 105))


def mazes() -> list[Panel]:
    """Reward in both mazes."""
    folders = {"easy maze": "maze_easy", "maze": "maze"}
    return by_model(folders, "reward", "reward per episode")


def blocked_walk() -> list[Panel]:
    """Learning curves of three models on the blocked random walk; seven cells are free."""
    found = json.loads((RESULTS / "blocked_random_walk_curves.json").read_text())
    curves = {model_name(model): [stages] for model, stages in found.items()}

    def show(axes) -> None:
        plots.draw_curves(axes, curves, metric="accuracy")
        draw_reference(axes, 100 / 7, "chance: one of 7 cells")
        axes.set(ylabel="cells predicted correctly (%)", ylim=(0, 102))

    return [Panel(show)]


def quickstart() -> list[Panel]:
    """The curves and layer weights of a run of the quickstart."""
    found = json.loads((RESULTS / "quickstart_curves.json").read_text())
    curves = {"": [found["curves"]]}
    return [
        Panel(partial(plots.draw_curves, found=curves, metric="bpb"), title="Feedback Transformer, Python code"),
        Panel(
            partial(plots.draw_layer_weights, found={"": found["layer_weights"]}), title="what its memory is made of"
        ),
    ]


def corridor() -> list[Panel]:
    """Success against span."""
    return against.panels(grouped(read_runs(str(RESULTS / "corridor"))), "span", ["success"])


def compositions() -> list[Panel]:
    """Accuracy and bits per character by memory composition."""
    found = {}
    for task, folder in (("walk", "memory_composition_walk"), ("char_ptb", "memory_composition_ptb")):
        groups, metric = grouped(read_runs(str(RESULTS / folder))), memory_composition.TASKS[task][1]
        found[task] = memory_composition.values_of(groups, metric, layers=2)
    return memory_composition.panels(found)


def persistent_vectors() -> list[Panel]:
    """Best validation of each model."""
    best = persistent_memory.best_of_runs(read_runs(str(RESULTS / "all_attention")))
    return persistent_memory.panels(best, "N512")


def _draw_passes(axes) -> None:
    path = REPOSITORY / "examples/benchmark/results/2026-11-28-xeon-passes.json"
    errors = json.loads(path.read_text())["errors"]
    for (task, (name, color)), marker in zip(PASSES.items(), "os^"):
        axes.plot(range(1, len(errors[task]) + 1), errors[task], color=color, marker=marker, markersize=3, label=name)
    axes.set(yscale="log", xlabel="passes over all steps at once", ylabel="error of the memory, relative to its norm")
    axes.legend(title="trained on")


def parallel_passes() -> list[Panel]:
    """Errors of a Feedback Transformer's memory on text, the walk and A5."""
    return [Panel(_draw_passes)]


FIGURES = {
    "examples/figures/parallel_passes.png": parallel_passes,
    "docs/figures/idea.png": lambda: [Panel(draw_transformer, size=(0, 3.9)), Panel(draw_feedback, size=(0, 3.9))],
    "docs/figures/streams.png": lambda: [Panel(draw_streams, size=(0, 3.1))],
    "examples/figures/blocked_random_walk.png": blocked_walk,
    "examples/figures/char_ptb_depth.png": char_ptb_depth,
    "examples/figures/char_ptb_updates.png": char_ptb_updates,
    "examples/figures/enwik8_depth.png": enwik8_depth,
    "examples/figures/mazes_small.png": mazes,
    "examples/figures/toy_tasks.png": toy_tasks,
    "examples/figures/corridor_small.png": corridor,
    "examples/figures/memory_composition_small.png": compositions,
    "examples/figures/multi30k_depth.png": multi30k_depth,
    "examples/figures/persistent_memory_small.png": persistent_vectors,
    "examples/figures/quickstart.png": quickstart,
    "examples/figures/word_problem_A5.png": word_problem,
}


def main(folder: pathlib.Path) -> None:
    """Draw all of ``FIGURES`` below a folder."""
    for name, panels in FIGURES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        draw_figure(str(folder / name), panels())
        image = Image.open(folder / name).convert("RGB").quantize(256, dither=Image.Dither.NONE)  # small, in git
        image.save(folder / name, optimize=True, dpi=(DPI, DPI))
        print(f"Wrote {folder / name}")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY)
