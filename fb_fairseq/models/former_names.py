"""The names that parameters of a Transformer had in former versions of fairseq."""

import re

from torch import Tensor

FUSED_PROJECTION = re.compile(r"(.*_attn\.)in_proj_(weight|bias)$")
NUMBERED_NORM = re.compile(r"(encoder|decoder)(\.layers\.\d+\.)layer_norms\.(\d)(\..*)$")
NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}


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
