"""The steps of state tracking beside the recurrent models of today: not in the Feedback Transformer papers
(docs/state-tracking.md). The settings are in the files of the toy tasks.
"""

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

from fb_fairseq.command_line import whole_number
from fb_fairseq.papers.experiments.settings import composition
from fb_fairseq.papers.steps import PYTHON, Call, Recipe, Step
from fb_fairseq.papers.steps.options import check_models, known
from fb_fairseq.papers.steps.results import FIGURES
from fb_fairseq.papers.steps.training import suffix
from fb_fairseq.papers.steps.words import words
from fb_fairseq.papers.toy_tasks.common import TrackingRecipe

COMMAND = (*PYTHON, "fb_fairseq", "state-tracking")
MODELS = ("feedback", "transformer", "lstm")
# All models of ``state-tracking``, repeated here because importing its module would import torch.
KNOWN = (
    *MODELS,
    "mamba",
    "mamba2",
    "rwkv",
    "xlstm",
    "slstm",
    "gated_deltanet",
    "gated_deltanet_negative",
)
CHANGES = ("updates", "longest", "test_sequences", "curriculum", "group")


def recipe(task: str, described: TrackingRecipe) -> Recipe:
    """The recipe of a toy task."""
    options = {
        **known("models spans layers lrs seeds updates"),
        "longest": (whole_number, "training sequences have up to so many elements (recall: pairs)"),
        "test_sequences": (whole_number, "sequences of each size in tests (default: 3000)"),
        "curriculum": (str, "growing (default): training sequences grow; or mixed: they have all lengths"),
        "no_speed": (None, "do not measure steps per second (at the first of --layers and of --spans)"),
    }
    if "group" in described.small:
        options["group"] = (str, f"of word problems (default: {described.small['group']})")
    return Recipe(
        described.summary,
        partial(steps_of, task, described),
        options,
        sizes="small",
        variant="group",
        extra="state-tracking train",
    )


def steps_of(task: str, described: TrackingRecipe, call: Call) -> Iterator[Step]:
    """Train and test the models, measure their speed, and draw the comparison."""
    setting = {"task": task, **(described.small if call.small else described.full), **call.given(*CHANGES)}
    given = {"models": MODELS, "layers": [setting["layers"]], "spans": [None], **call.options}
    check_models(given["models"], [*KNOWN, "average", "previous", "layer1"], composition)
    axes = (given.get("seeds", [1]), given.get("lrs", [0.003]), given["layers"], given["spans"], given["models"])
    for seed, lr, layers, span, model in product(*axes):
        composed = composition(model)
        end = suffix(1, layers if "layers" in call.options else None, span)
        run = f"{model}{end}-lr{lr:g}-seed{seed}"
        options: dict[str, Any] = {**setting, "model": "feedback" if composed else model, "lr": lr, "seed": seed}
        options.update(layers=layers, span=span)
        options["memory_composition"] = composed and composed["memory_composition"]
        command = [*COMMAND, "train", *words(options), "--out", call.at(run), *call.extra]
        log = call.at(f"{run}.log")
        yield Step(f"train {run}", command, [call.at(run, "result.json"), log], log=log, trains=True)
    options = {name: value for name, value in setting.items() if name not in ("updates", "curriculum")}
    options.update(layers=given["layers"][0], span=given["spans"][0])
    for model in given["models"]:
        if model in KNOWN and "no_speed" not in given:
            file = call.at("speed", f"{model}.txt")
            command = [*PYTHON, "fb_fairseq", "benchmark", "tracking", "--models", model, *words(options)]
            yield Step(f"measure the speed of {model}", command, [file], output=file, alone=True)
    written = [call.at(name) for name in ("results.json", "results.md", "accuracy.png")]
    command = [*PYTHON, f"{FIGURES}.state_tracking", call.out, task]
    yield Step("compare", command, written, output=call.at("results.md"), shown=True)
