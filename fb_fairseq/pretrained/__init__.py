"""Trained models that come with the package, in plain PyTorch: neither fairseq nor transformers is needed.

    model = load("python")
    print(model.generate("def main(", length=200, seed=1))
    logits_TBV, state = model(tokens_TB)

    python/   continues Python code, byte by byte
    a5/       keeps track of a product of elements of the group A5: gives each element a label, the product so far

Each folder is as ``fb-fairseq export`` writes it; README.md in it says how the model was trained, and what it
can do. folders.py reads it; model.py has the model, and vocabulary.py makes texts of its tokens.
"""

import os
from typing import TYPE_CHECKING

from fb_fairseq.errors import UserError

if TYPE_CHECKING:  # torch is imported only to load a model
    from fb_fairseq.pretrained.model import LanguageModel

NAMES = ("python", "a5")


def folder(name: str) -> str:
    """The folder of a model that comes with the package. ``name``: one of ``NAMES``."""
    return os.path.join(os.path.dirname(__file__), name)


def find(path: str) -> str:
    """A path, or the folder of the model of this name, unless a file or exported model here is called so."""
    own = os.path.isfile(path) or os.path.isfile(os.path.join(path, "config.json"))
    return folder(path) if path in NAMES and not own else path


def load(name: str) -> "LanguageModel":
    """A language model in evaluation mode, its parameters in single precision.

    ``name``: one of ``NAMES``, or a folder that ``fb-fairseq export`` has written.
    """
    from fb_fairseq.pretrained.folders import read_folder
    from fb_fairseq.pretrained.model import build

    path = find(os.fspath(name))
    if not os.path.isdir(path):
        raise UserError(f"{path}: no such folder; give one of export, or {' or '.join(NAMES)}")
    return build(read_folder(path))
