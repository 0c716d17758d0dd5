"""Models that commands read: checkpoints of fairseq, exported folders, and those that come with the package."""

import os
from typing import TYPE_CHECKING

from fb_fairseq import pretrained

if TYPE_CHECKING:  # torch is imported only to read a model
    from fb_fairseq.pretrained.model import LanguageModel
    from fb_fairseq.trained_model import TrainedModel


def read_model(
    path: str, dictionaries: str | None = None, source_lang: str | None = None, target_lang: str | None = None
) -> "TrainedModel":
    """Read a model and its dictionaries.

    Args:
        path: a checkpoint, a folder, or a name of ``fb_fairseq.pretrained``.
        dictionaries: of a checkpoint, see ``fb_fairseq.models.checkpoints.read_dictionaries``. (A folder has its own.)
        source_lang, target_lang: languages of a checkpoint; None: those of its training.
    """
    trained = read_parameters(path)
    if trained.symbols:
        return trained
    from fb_fairseq.models.dictionaries import read_dictionaries
    from fb_fairseq.tensor_files import using

    with using(path):
        given = {"source_lang": source_lang, "target_lang": target_lang}
        trained.task.update({side: language for side, language in given.items() if language})
        read_dictionaries(trained, dictionaries)
    return trained


def read_parameters(path: str) -> "TrainedModel":
    """Read a model; a checkpoint without its dictionaries. ``path``: see ``read_model``."""
    folder = pretrained.find(path)
    if os.path.isdir(folder):
        from fb_fairseq.pretrained.folders import read_folder

        return read_folder(folder)
    from fb_fairseq import patches  # noqa: F401  the safe globals, before fairseq is used

    # isort: split
    from fb_fairseq.models.checkpoints import read_checkpoint
    from fb_fairseq.tensor_files import using

    with using(path):
        return read_checkpoint(path)


def read_language_model(
    path: str, dictionaries: str | None = None, cpu: bool = False, option: str = ""
) -> "LanguageModel":
    """A language model to read texts with, in evaluation mode, on a GPU if there is one.

    Args:
        path, dictionaries: see ``read_model``.
        cpu: use the CPU even if there is a GPU.
        option: the command's option that names it, for messages; empty if none does.
    """
    import torch

    from fb_fairseq.pretrained.model import build
    from fb_fairseq.tensor_files import using

    trained = read_model(path, dictionaries)
    with using(path):
        model = build(trained).to("cuda" if torch.cuda.is_available() and not cpu else "cpu")
    model.source = f"{option} {path}".strip()
    return model
