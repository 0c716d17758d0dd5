"""Checkpoints of fairseq, of 0.6 and later, as ``TrainedModel``; their dictionaries, and former names of parameters."""

import os
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

from torch import Tensor

from fb_fairseq.checksums import check_dictionaries, dictionary_checksums, trained_dictionaries
from fb_fairseq.errors import UserError
from fb_fairseq.facts import facts_of_checkpoint
from fb_fairseq.models.layers import vocabulary_size
from fb_fairseq.patches.meaning import with_architecture
from fb_fairseq.tensor_files import load_checkpoint, model_options
from fb_fairseq.trained_model import LEFT_OUT, TrainedModel

FUSED_PROJECTION = re.compile(r"(.*_attn\.)in_proj_(weight|bias)$")
NUMBERED_NORM = re.compile(r"(encoder|decoder)(\.layers\.\d+\.)layer_norms\.(\d)(\..*)$")
NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}


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


def read_dictionaries(trained: TrainedModel, given: str | None = None) -> None:
    """Add the dictionaries of its training to a model that was read from a checkpoint.

    ``given``: the folder that they are in, or the only one's file; None: that of the training data, or the checkpoint's
    own.
    """
    from fairseq.data import Dictionary

    data = str(trained.task.get("data") or "").split(":")[0]
    if trained.translates:
        find_languages(trained, data)
    beside = os.path.dirname(os.path.abspath(trained.path))
    folders = [given] if given else [data or beside, beside]
    sides = ("encoder", "decoder") if trained.translates else ("decoder", None)
    for name, side, kind in zip(trained.dictionary_names(), sides, ("source", "target")):
        candidates = [os.path.join(folder, name) for folder in folders] + [given or ""]
        path = next((candidate for candidate in candidates if os.path.isfile(candidate)), None)
        if path is None:
            raise trained.error(f"{candidates[0]} is missing; give the folder of its training data, with {name}")
        found = Dictionary.load(path)
        size = side and vocabulary_size(trained.parameters, f"{side}.embed_tokens.")  # (labels have no embeddings)
        if size and len(found) != size:
            raise trained.error(f"has {size} symbols, {path} {len(found)}; give the dictionary of its training")
        check_dictionaries(trained.path, trained.dictionaries, dictionary_checksums({kind: found}))
        trained.symbols[name] = found.symbols


def find_languages(trained: TrainedModel, data: str) -> None:
    """Add the languages that fairseq-train found in the data folder, unless it was told them."""
    from fairseq.data.data_utils import infer_language_pair

    if os.path.isdir(data):
        for side, found in zip(("source_lang", "target_lang"), infer_language_pair(data)):
            trained.task[side] = trained.task.get(side) or found
    if not (trained.task.get("source_lang") and trained.task.get("target_lang")):
        raise trained.error(
            f"does not say its languages, nor does its data folder {data}; give --source-lang and --target-lang"
        )


def update_names(parameters: dict[str, Tensor]) -> None:
    """Rename the parameters of old checkpoints in place, as fairseq does when it loads them into its own models.

    Up to 0.8, one matrix projected to queries, keys and values (``in_proj_weight``). Up to 0.6, norms had numbers
    (``layer_norms.0``). The output layer used to be called ``embed_out``, and was not saved if tied to the embeddings.
    """
    for name in list(parameters):
        fused = FUSED_PROJECTION.match(name)
        if fused:
            for part, value in zip("qkv", parameters.pop(name).chunk(3)):
                parameters[f"{fused[1]}{part}_proj.{fused[2]}"] = value
        norm = NUMBERED_NORM.match(name)
        if norm:
            side, layer, number, part = norm.groups()
            parameters[f"{side}{layer}{NORMS[side][int(number)]}{part}"] = parameters.pop(name)
    output = "decoder.output_projection.weight"
    if output not in parameters and not any(name.startswith("decoder.adaptive_softmax") for name in parameters):
        weight = parameters.pop("decoder.embed_out", parameters.get("decoder.embed_tokens.weight"))
        if weight is not None:
            parameters[output] = weight
