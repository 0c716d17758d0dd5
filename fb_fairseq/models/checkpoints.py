"""Checkpoints of fairseq, of 0.6 and later, as ``TrainedModel``."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from fb_fairseq.checksums import trained_dictionaries
from fb_fairseq.errors import UserError
from fb_fairseq.facts import facts_of_checkpoint
from fb_fairseq.patches.meaning import with_architecture
from fb_fairseq.tensor_files import load_checkpoint, model_options
from fb_fairseq.trained_model import LEFT_OUT, TrainedModel


def read_checkpoint(path: str) -> TrainedModel:
    """Read a checkpoint of fairseq, without its dictionaries."""
    saved = load_checkpoint(path)
    options = plain_options(model_options(saved))
    if not options:
        raise UserError(f"{path}: has no options of its model; give a checkpoint of fairseq-train")
    return TrainedModel(
        path,
        with_architecture(options),
        {name: value for name, value in saved["model"].items() if not LEFT_OUT.match(name)},
        task=plain_options(model_options(saved, "task")),
        facts=facts_of_checkpoint(saved),
        dictionaries=trained_dictionaries(saved),
    )


def plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with values as JSON has them, and lists as on the command line. fairseq 0.11 and later may nest them:
    ``{"decoder": {"layers": 6}}`` becomes ``{"decoder_layers": 6}``.
    """
    plain: dict[str, Any] = {}
    nested: dict[str, Any] = {}
    for name, value in options.items():
        if isinstance(value, Mapping):
            nested.update({f"{name}_{inner}": x for inner, x in plain_options(value).items()})
        elif isinstance(value, (list, tuple)):
            plain[name] = ",".join(map(str, value))
        elif isinstance(value, Enum):
            plain[name] = str(value)
        else:
            plain[name] = value
    return {**plain, **nested}
