"""Reads the checkpoint that ``--init-from-transformer`` names, of fairseq 0.6 and later."""

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from omegaconf import OmegaConf
from torch import Tensor

from fb_fairseq.checksums import trained_dictionaries
from fb_fairseq.errors import UserError, flag
from fb_fairseq.patches.fairseq_fixed import FUSED_COPY
from fb_fairseq.tensor_files import load_checkpoint

OPTION = flag("init_from_transformer")
# Copies that fairseq 0.12.2's encoder layers keep for PyTorch's fused path, and buffers.
NO_PARAMETERS = re.compile(rf".*\.version$|.*\._float_tensor$|{FUSED_COPY}")
FUSED_PROJECTION = re.compile(r"(.*_attn\.)in_proj_(weight|bias)$")
NUMBERED_NORM = re.compile(r"(encoder|decoder)(\.layers\.\d+\.)layer_norms\.(\d)(\..*)$")
NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}


class VanillaCheckpoint(NamedTuple):
    """The model of a checkpoint: parameters and options.

    Attributes:
        path: the file.
        parameters: by name, without what matches ``NO_PARAMETERS``.
        options: the saved options of the model; fairseq 0.11 and later may nest them (``{"decoder": {"layers": 6}}``).
        dictionaries: checksums of those of its training; None if it does not say.
    """

    path: str
    parameters: dict[str, Tensor]
    options: dict[str, Any]
    dictionaries: Any = None

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
