"""The names of memory compositions, as models of a recipe."""

import re
from typing import Optional

from fb_fairseq.papers.runner.settings import Model

WITH_ARGUMENT = re.compile(r"([a-z-]+?)(\d+)")


def composition(name: str) -> Optional[dict]:
    """The options of the Feedback Transformer whose memory composition this is (v1 Table 5, v3 Figures 5 and 8): its
    name, with a number as in layer0, layer1, … where it takes one; None for other names."""
    from fb_fairseq.modules.memory import COMPOSITIONS  # (torch takes a second to import)

    found = WITH_ARGUMENT.fullmatch(name)
    if found and found[1] in COMPOSITIONS and COMPOSITIONS[found[1]].takes:
        name = f"{found[1]}:{found[2]}"
    elif name not in COMPOSITIONS or COMPOSITIONS[name].takes:
        return None
    return dict(memory_projections="per-layer", memory_composition=name)


def composed(name: str, arch: str = "feedback_transformer_lm") -> Optional[Model]:
    """The model with this memory composition; None for other names."""
    options = composition(name)
    return Model(arch, options) if options else None
