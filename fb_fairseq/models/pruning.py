"""Layers to keep of a checkpoint: ``--encoder-layers-to-keep`` and ``--decoder-layers-to-keep`` (LayerDrop, Fan et al.
2020).
"""

from contextlib import nullcontext
from typing import Any

from omegaconf import OmegaConf, open_dict
from torch import Tensor

from fb_fairseq.errors import UserError, flag
from fb_fairseq.modules.memory import FeedbackMemory

LAYER_WEIGHTS = "decoder.memory.layer_weights"
SIDES = ("encoder", "decoder")


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
    """The layers to keep of a checkpoint; empty: all.

    Args:
        cfg: a model's configuration, or None; models without pruning do not have the option.
        side: ``decoder`` or ``encoder``.
    """
    text = getattr(cfg, f"{side}_layers_to_keep", None)
    if not text:
        return []
    option = flag(f"{side}_layers_to_keep")
    kept = parse_layers(option, text)
    _check(option, kept, getattr(cfg, f"{side}_layers"), f"model has {flag(f'{side}_layers')}")
    return kept


def _check(option: str, kept: list[int], layers: int, owner: str) -> None:
    """Check that there are the layers to keep. ``owner``: who has so many ``layers``, for the error."""
    if max(kept) >= layers:
        raise UserError(
            f"{option} {','.join(map(str, kept))}: the {owner} {layers}, the layers 0 to {layers - 1}; give some of "
            "these"
        )


def count_layers(state_dict: dict[str, Tensor], side: str = "decoder") -> int:
    """Number of decoder or encoder layers in a checkpoint. ``side``: ``decoder`` or ``encoder``."""
    prefix = f"{side}.layers."
    return 1 + max([int(name.split(".")[2]) for name in state_dict if name.startswith(prefix)], default=-1)


def prune(state_dict: dict[str, Tensor], cfg: Any) -> None:
    """Keep only the kept layers of a checkpoint, and their weights in the memory, in place.

    Afterwards the configuration has the number of layers that are left, and none to keep: fairseq saves it with them.
    (Its own pruning leaves the number as it was, and drops the whole encoder if only the decoder is to be pruned.) A
    checkpoint with as many layers as are to be kept has been pruned before: the same command resumes a run. A layer
    that ``--memory-composition`` names is counted among those that are left.

    ``cfg``: the model's configuration; or None.
    """
    for side in SIDES:
        kept = kept_layers(cfg, side)
        if not kept:
            continue
        layers = count_layers(state_dict, side)
        if layers != len(kept):
            _check(flag(f"{side}_layers_to_keep"), kept, layers, "checkpoint has")
            _keep(state_dict, side, kept)
        with open_dict(cfg) if OmegaConf.is_config(cfg) else nullcontext():
            setattr(cfg, f"{side}_layers", len(kept))
            setattr(cfg, f"{side}_layers_to_keep", None)


def _keep(state_dict: dict[str, Tensor], side: str, kept: list[int]) -> None:
    """Drop the other layers of one side, and number those that are left from 0."""
    for name in [name for name in state_dict if name.startswith(f"{side}.layers.")]:
        parts = name.split(".")
        value = state_dict.pop(name)
        if int(parts[2]) in kept:
            parts[2] = str(kept.index(int(parts[2])))
            state_dict[".".join(parts)] = value
    if side == "decoder" and LAYER_WEIGHTS in state_dict:
        state_dict[LAYER_WEIGHTS] = FeedbackMemory.keep_layers(state_dict[LAYER_WEIGHTS], kept)
