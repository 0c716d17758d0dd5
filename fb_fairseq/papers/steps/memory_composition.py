"""The steps of a comparison of memory compositions (v1 Table 5, v3 Figures 5 and 8): two recipes, the blocked random
walk in OUT/walk and then, if it is given, character-level PTB in OUT/char_ptb.
"""

from collections.abc import Iterator
from dataclasses import replace

from fb_fairseq.command_line import whole_number
from fb_fairseq.errors import UserError
from fb_fairseq.papers.steps import Call, Recipe, Step
from fb_fairseq.papers.steps.options import known
from fb_fairseq.papers.steps.training import drawn

PAPERS_LAYERS = 6  # of v3 Table 9's setting for PTB
OPTIONS = {
    **known("seeds updates finetune_updates"),
    "layers": (whole_number, "number of layers (default: 3 with --small, else 6)"),
    "walk_updates": (whole_number, "of training on the walk"),
}


def recipe(walk: Recipe, ptb: Recipe) -> Recipe:
    """The recipe that is made of these two."""

    def steps(call: Call) -> Iterator[Step]:
        layers = call.options.get("layers", 3 if call.small else PAPERS_LAYERS)
        if not call.small and layers != PAPERS_LAYERS:
            raise UserError(f"--layers {layers}: the papers' setting for PTB has {PAPERS_LAYERS}; use it, or --small")

        def part(name: str, transformer: str, **options: object) -> Call:
            models = ["weighted", "average", "same-and-lower", transformer, *(f"layer{n}" for n in range(layers + 1))]
            options = {"models": models, **call.given("seeds"), **options}
            return replace(call, name=name, options=options)

        own = {"layers": [layers], "seeds": call.options.get("seeds", [1, 2, 3])}
        if "walk_updates" in call.options:
            own["updates"] = call.options["walk_updates"]
        walks = part("blocked_random_walk", "relative_transformer_lm", **own)
        yield from inside("walk", walks, walk)
        if call.data:
            own = {**call.given("updates", "finetune_updates"), **({"layers": [layers]} if call.small else {})}
            name = "relative_transformer_lm" if call.small else "relative_transformer_lm_char_ptb"
            yield from inside("char_ptb", part("char_ptb", name, **own), ptb)
        yield drawn(call, "memory_composition", "composition.png", layers)

    data = "the folder of PTB's word-level files; it may be left out, for the walk only"
    summary = "which layers the memory combines, on the walk and on PTB (v1 Table 5, v3 Figures 5 and 8)"
    return Recipe(summary, steps, OPTIONS, data)


def inside(folder: str, call: Call, recipe: Recipe) -> Iterator[Step]:
    """The steps of a recipe in a folder of the output folder."""
    for step in recipe.steps(replace(call, out=call.at(folder))):
        yield replace(step, does=f"{folder}: {step.does}")
