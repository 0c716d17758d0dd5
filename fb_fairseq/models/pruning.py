"""``--decoder-layers-to-keep``: fairseq prunes the layers of a checkpoint, this its memory's weights."""

from typing import List

from fb_fairseq.errors import UserError


def parse_layers(option: str, text: str) -> List[int]:
    """Layer numbers from 0, sorted, of ``0,2,5``."""
    try:
        return sorted(int(layer) for layer in text.split(","))
    except ValueError:
        raise UserError(f"{option} {text}: give layer numbers from 0, as 0,2,5") from None


def kept_layers(cfg) -> List[int]:
    """The layers that a model's configuration keeps of a checkpoint; none given: empty."""
    text = getattr(cfg, "decoder_layers_to_keep", None) if cfg is not None else None
    return parse_layers("--decoder-layers-to-keep", text) if text else []


def count_layers(state_dict) -> int:
    """How many layers the decoder of a checkpoint has."""
    return 1 + max([int(name.split(".")[2]) for name in state_dict if name.startswith("decoder.layers.")], default=-1)


def prune_memory(stack, state_dict, kept: List[int]) -> None:
    """Leave the memory's weights of the kept layers in a checkpoint, in place."""
    if not kept:
        return
    layers = count_layers(state_dict)
    if max(kept) >= layers:
        raise UserError(f"--decoder-layers-to-keep {kept}: the checkpoint has the layers 0 to {layers - 1}")
    name = "decoder.memory.layer_weights"
    if name in state_dict:
        state_dict[name] = stack.memory.keep_layers(state_dict[name], kept)
