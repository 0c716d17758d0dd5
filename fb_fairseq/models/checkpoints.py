"""Layers of checkpoints: of the one that ``--init-from-transformer`` names (fairseq 0.6 and later), and those that
``--encoder-layers-to-keep`` and ``--decoder-layers-to-keep`` name (LayerDrop, Fan et al. 2020)."""

import re
from collections.abc import Mapping
from contextlib import ExitStack
from enum import Enum
from typing import Any, NamedTuple

from omegaconf import OmegaConf, open_dict
from torch import Tensor

from fb_fairseq.checksums import trained_dictionaries
from fb_fairseq.errors import UserError, flag
from fb_fairseq.modules.memory import FeedbackMemory
from fb_fairseq.patches.fairseq_fixed import FUSED_COPY
from fb_fairseq.tensor_files import load_checkpoint

LAYER_WEIGHTS = "decoder.memory.layer_weights"
SIDES = ("encoder", "decoder")
OPTION = flag("init_from_transformer")
# Copies that fairseq 0.12.2's encoder layers keep for PyTorch's fused path, and buffers.
NO_PARAMETERS = re.compile(rf".*\.version$|.*\._float_tensor$|{FUSED_COPY}")
FUSED_PROJECTION = re.compile(r"(.*_attn\.)in_proj_(weight|bias)$")
NUMBERED_NORM = re.compile(r"(encoder|decoder)(\.layers\.\d+\.)layer_norms\.(\d)(\..*)$")
NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}


def parse_layers(option: str, text: str) -> list[int]:
    """Layer numbers from 0, sorted, from a list such as ``0,2,5``. ``option``: the option's name, for the error."""
    try:
        layers = sorted(int(layer) for layer in text.split(","))
    except ValueError:
        layers = []
    if not layers or layers[0] < 0 or len(set(layers)) < len(layers):
        raise UserError(f"{option} {text}: give layer numbers, counted from 0, for example 0,2,5")
    return layers


def kept_layers(cfg, side: str = "decoder") -> list[int]:
    """The layers to keep of a checkpoint; empty: all. ``cfg``: a model's configuration, or None; models without pruning
    do not have the option. ``side``: ``decoder`` or ``encoder``."""
    text = getattr(cfg, f"{side}_layers_to_keep", None)
    if not text:
        return []
    option = flag(f"{side}_layers_to_keep")
    kept = parse_layers(option, text)
    _check(option, kept, getattr(cfg, f"{side}_layers"), f"model has {flag(f'{side}_layers')}")
    return kept


def _check(option: str, kept: list[int], layers: int, owner: str) -> None:
    if max(kept) >= layers:
        raise UserError(f"{option} {','.join(map(str, kept))}: the {owner} {layers}, 0 to {layers - 1}; give these")


def count_layers(state_dict: dict[str, Tensor], side: str = "decoder") -> int:
    """Number of decoder or encoder layers in a checkpoint."""
    prefix = f"{side}.layers."
    return 1 + max([int(name.split(".")[2]) for name in state_dict if name.startswith(prefix)], default=-1)


def prune(state_dict: dict[str, Tensor], cfg: Any) -> None:
    """Keep only the kept layers of a checkpoint, and their weights in the memory, in place.

    Afterwards the configuration has the number of layers that are left, and none to keep: fairseq saves it with them.
    (Its own pruning leaves the number as it was, and drops the whole encoder if only the decoder is to be pruned.) A
    checkpoint with as many layers as are to be kept has been pruned before: the same command resumes a run.

    ``cfg``: the model's configuration; or None."""
    for side in SIDES:
        kept = kept_layers(cfg, side)
        if not kept:
            continue
        layers = count_layers(state_dict, side)
        if layers != len(kept):
            _check(flag(f"{side}_layers_to_keep"), kept, layers, "checkpoint has")
            _keep(state_dict, side, kept)
        with open_dict(cfg) if OmegaConf.is_config(cfg) else ExitStack():
            setattr(cfg, f"{side}_layers", len(kept))
            setattr(cfg, f"{side}_layers_to_keep", None)


def _keep(state_dict: dict[str, Tensor], side: str, kept: list[int]) -> None:
    for name in [name for name in state_dict if name.startswith(f"{side}.layers.")]:
        parts, value = name.split("."), state_dict.pop(name)
        if int(parts[2]) in kept:
            parts[2] = str(kept.index(int(parts[2])))
            state_dict[".".join(parts)] = value
    if side == "decoder" and LAYER_WEIGHTS in state_dict:
        state_dict[LAYER_WEIGHTS] = FeedbackMemory.keep_layers(state_dict[LAYER_WEIGHTS], kept)


class VanillaCheckpoint(NamedTuple):
    """The model of a checkpoint: parameters and options."""

    path: str  # the file
    parameters: dict[str, Tensor]  # by name, without what matches ``NO_PARAMETERS``
    # the saved options of the model; fairseq 0.11 and later may nest them (``{"decoder": {"layers": 6}}``)
    options: dict[str, Any]
    dictionaries: Any = None  # checksums of those of its training; None if it does not say

    def option(self, name: str) -> Any:
        """The value that the model was trained with, as ``decoder_layers``; None if it is not saved."""
        group, _, rest = name.partition("_")
        nested = self.options.get(group)
        value = nested[rest] if isinstance(nested, dict) and rest in nested else self.options.get(name)
        return str(value) if isinstance(value, Enum) else value

    def error(self, problem: str) -> UserError:
        """An error that names the option and the file."""
        return UserError(f"{OPTION} {self.path}: {problem}")


def read_checkpoint(path: str) -> VanillaCheckpoint:
    """Read a checkpoint."""
    try:
        checkpoint = load_checkpoint(path)
    except OSError as error:
        raise UserError(f"{OPTION} {path}: {error.strerror}; give a vanilla Transformer's checkpoint") from None
    except UserError as error:
        raise UserError(f"{OPTION} {error}") from None
    parameters = {name: value for name, value in checkpoint["model"].items() if not NO_PARAMETERS.match(name)}
    # Before fairseq 0.11 a Namespace.
    saved = checkpoint["cfg"].get("model") if isinstance(checkpoint.get("cfg"), Mapping) else checkpoint.get("args")
    if saved is None:
        raise UserError(f"{OPTION} {path}: has no configuration of its model; give a checkpoint of fairseq-train")
    return VanillaCheckpoint(path, parameters, options_dict(saved), trained_dictionaries(checkpoint))


def options_dict(cfg: Any) -> dict[str, Any]:
    """A model's options as a dictionary, from a Namespace, an OmegaConf configuration or a dictionary."""
    if OmegaConf.is_config(cfg):
        return OmegaConf.to_container(cfg)
    return cfg if isinstance(cfg, dict) else vars(cfg)


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
