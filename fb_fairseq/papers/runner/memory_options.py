"""The names of memory compositions, as models of a recipe."""

import re
from typing import Optional

from fb_fairseq.papers.runner.settings import Model

LAYER = re.compile(r"layer(\d+)")
COMPOSITIONS = ("weighted", "average", "same-and-lower", "previous")


def composition(name: str) -> Optional[dict]:
    """The options of the Feedback Transformer whose memory composition this is (v1 Table 5, v3 Figures 5 and 8):
    weighted, average, same-and-lower, previous or layer0, layer1, …; None for other names."""
    found = LAYER.fullmatch(name)
    if found:
        name = f"layer:{found[1]}"
    elif name not in COMPOSITIONS:
        return None
    return dict(memory_projections="per-layer", memory_composition=name)


def composed(name: str, arch: str = "feedback_transformer_lm") -> Optional[Model]:
    """The model with this memory composition; None for other names."""
    options = composition(name)
    return Model(arch, options) if options else None
