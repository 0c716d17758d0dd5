"""``--decoder-layers-to-keep`` (LayerDrop, Fan et al. 2020): fairseq prunes a checkpoint's layers, this module the
weights with which the memory mixes them."""

from typing import Dict, List

from torch import Tensor

from fb_fairseq.errors import UserError, flag
from fb_fairseq.modules.memory import FeedbackMemory

LAYER_WEIGHTS = "decoder.memory.layer_weights"


def parse_layers(option: str, text: str) -> List[int]:
    """Layer numbers from 0, sorted, from a list such as ``0,2,5``.

    Args:
        option: the option's name, for the error.

    Raises:
        UserError: the text is not such a list.
    """
    try:
        return sorted(int(layer) for layer in text.split(","))
    except ValueError:
        raise UserError(f"{option} {text}: give layer numbers, counted from 0, for example 0,2,5") from None


def kept_layers(cfg) -> List[int]:
    """The decoder layers to keep of a checkpoint; empty: all.

    Args:
        cfg: a model's configuration, or None; models without pruning do not have the option.

    Raises:
        UserError: the option is not a list of layer numbers.
    """
    text = getattr(cfg, "decoder_layers_to_keep", None)
    return parse_layers(flag("decoder_layers_to_keep"), text) if text else []


def count_layers(state_dict: Dict[str, Tensor]) -> int:
    """Number of decoder layers in a checkpoint."""
    return 1 + max([int(name.split(".")[2]) for name in state_dict if name.startswith("decoder.layers.")], default=-1)


def prune_memory(state_dict: Dict[str, Tensor], kept: List[int]) -> None:
    """Keep only the kept layers' weights of the memory in a checkpoint, in place.

    Args:
        kept: layers to keep, counted from 0; empty: all.

    Raises:
        UserError: the checkpoint does not have these layers.
    """
    if not kept:
        return
    layers = count_layers(state_dict)
    if max(kept) >= layers:
        raise UserError(
            f"{flag('decoder_layers_to_keep')} {','.join(map(str, kept))}: the checkpoint has the layers 0 to "
            f"{layers - 1}; give some of these"
        )
    if LAYER_WEIGHTS in state_dict:
        state_dict[LAYER_WEIGHTS] = FeedbackMemory.keep_layers(state_dict[LAYER_WEIGHTS], kept)
