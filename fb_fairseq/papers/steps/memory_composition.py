"""The steps of a comparison of memory compositions (v1 Table 5, v3 Figures 5 and 8): two recipes, the blocked random
walk in OUT/walk and then, if it is given, character-level PTB in OUT/char_ptb.
"""

from collections.abc import Iterator
from dataclasses import replace

from fb_fairseq.command_line import whole_number
from fb_fairseq.errors import UserError
from fb_fairseq.papers.steps import Call, Recipe, Step
from fb_fairseq.papers.steps.options import known
from fb_fairseq.papers.steps.results import drawn

PAPERS_LAYERS = 6  # of v3 Table 9's setting for PTB
OPTIONS = {
    **known("seeds finetune_updates"),
    "layers": (whole_number, "number of layers (default: 3 with --small, else 6)"),
    "walk_updates": (whole_number, "of training on the walk"),
    "updates": (whole_number, "of training on PTB, where models are fine-tuned, too"),
}


def recipe(walk: Recipe, ptb: Recipe) -> Recipe:
    """The recipe that is made of these two.

    Args:
        walk: that of the blocked random walk.
        ptb: that of character-level PTB.
    """

    def steps(call: Call) -> Iterator[Step]:
        layers = call.options.get("layers", 3 if call.small else PAPERS_LAYERS)
        yield from inside("walk", replace(call, name="blocked_random_walk", options=walk_options(call, layers)), walk)
        if call.data:
            yield from inside("char_ptb", replace(call, name="char_ptb", options=ptb_options(call, layers)), ptb)
        elif call.given("updates", "finetune_updates"):
            raise UserError("--updates, --finetune-updates: of the training on PTB; give its folder, or leave them out")
        yield drawn(call, "memory_composition", "composition.png", layers)

    data = "the folder of PTB's word-level files; it may be left out, for the walk only"
    summary = "which layers the memory combines, on the walk and on PTB (v1 Table 5, v3 Figures 5 and 8)"
    return Recipe(summary, steps, OPTIONS, data)


def walk_options(call: Call, layers: int) -> dict:
    """The options of the blocked random walk's recipe. ``layers``: their number."""
    options = {
        "models": models("relative_transformer_lm", layers),
        "layers": [layers],
        "seeds": call.options.get("seeds", [1, 2, 3]),
    }
    if "walk_updates" in call.options:
        options["updates"] = call.options["walk_updates"]
    return options


def ptb_options(call: Call, layers: int) -> dict:
    """The options of PTB's recipe. ``layers``: their number."""
    if not call.small and layers != PAPERS_LAYERS:
        raise UserError(f"--layers {layers}: the papers' setting for PTB has {PAPERS_LAYERS}; use it, or --small")
    arch = "relative_transformer_lm" + ("" if call.small else "_char_ptb")
    options = call.given("seeds", "updates", "finetune_updates")
    options["models"] = models(arch, layers)
    if call.small:
        options["layers"] = [layers]
    return options


def models(transformer: str, layers: int) -> list[str]:
    """The memory compositions, and the architecture of the Transformer beside them."""
    return ["weighted", "average", "same-and-lower", transformer, *(f"layer{n}" for n in range(layers + 1))]


def inside(folder: str, call: Call, recipe: Recipe) -> Iterator[Step]:
    """The steps of a recipe in a folder of the output folder."""
    for step in recipe.steps(replace(call, out=call.at(folder))):
        yield replace(step, does=f"{folder}: {step.does}")
