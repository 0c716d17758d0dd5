"""The state dict of an original program, and the import of its layers: all but embeddings and output layer.

Both programs, adaptive-span and transformer-sequential, save names with the prefix ``module.`` of the data-parallel
wrapper. Sizes are read off the tensors: the width D, H heads of width E, N persistent vectors, the attention span S and
L layers. Names (with ``weight``, and ``bias`` where there is one):

========================================  ==============================================================================
original                                  fairseq model
========================================  ==============================================================================
``key_pe`` [1, E, S]                      ``decoder.positions.key`` [S, E]; the original's last column is distance 1. In
                                          transformer-sequential ``layers.{l}.attn.attn.key_pe``, the same in each layer
``layers.{l}.attn.proj_query`` [H E, D]   ``decoder.layers.{l}.self_attn.q_proj``; the biases, which the original
                                          programs do not have, are zero; all-attention has none here either
``layers.{l}.attn.proj_key``              ``decoder.layers.{l}.self_attn.k_proj``, or ``decoder.memory.k_proj`` if
                                          shared by all layers of a Feedback Transformer
``layers.{l}.attn.proj_val``              ``decoder.layers.{l}.self_attn.v_proj``, or ``decoder.memory.v_proj``
``layers.{l}.attn.proj_out`` [D, H E]     ``decoder.layers.{l}.self_attn.out_proj``
``layers.{l}.norm1``                      ``decoder.layers.{l}.self_attn_layer_norm``, and ``decoder.memory.layer_norm``
                                          if shared (pre-norm)
``layers.{l}.ff.fc1``, ``fc2``            ``decoder.layers.{l}.fc1``, ``fc2``
``layers.{l}.norm2``                      ``decoder.layers.{l}.final_layer_norm``
``out_norm``                              ``decoder.layer_norm``, with pre-norm only
adaptive span [H, 1, 1]                   ``decoder.layers.{l}.self_attn.adaptive_span.z`` [H]
``….persistent_memory.key`` [H, E, N]     ``decoder.layers.{l}.persistent_memory.key`` [H, N, E]
``….persistent_memory.val`` [H, N, E]     ``decoder.layers.{l}.persistent_memory.value`` [H, N, E]
``single_memory_attn_params`` [1, L + 1]  ``decoder.memory.layer_weights`` [L + 1]
========================================  ==============================================================================
"""

import re
from typing import Any

from torch import Tensor

from fb_fairseq.errors import UserError
from fb_fairseq.trained_model import TrainedModel

PROGRAMS = "adaptive-span or transformer-sequential"
# Not imported: constants, buffers, positions of later layers, which are the first one's, and the adaptive spans' second
# entry, under the persistent memory.
IGNORED = re.compile(
    r".*mask_template$|single_memory_attn_buf$|layers\.\d+\.attn\.attn\.key_pe$|.*persistent_memory\.adaptive_span\..*"
)
# Names in adaptive-span, and in transformer-sequential.
POSITIONS = ("key_pe", "layers.0.attn.attn.key_pe")
SPANS = ("adaptive_span._mask.current_val", "adaptive_span.mask.size_ratio")
PROJECTIONS = {"q_proj": "query", "k_proj": "key", "v_proj": "val", "out_proj": "out"}
FEED_FORWARD = {"fc1": "ff.fc1", "fc2": "ff.fc2", "final_layer_norm": "norm2"}
AFFINE = ("weight", "bias")
FEEDBACK = "single_memory_attn_params"


class Source:
    """The state dict of an original program's checkpoint. It records which tensors have been imported.

    Args:
        path: the checkpoint, for messages.
        state: its tensors by name.
    """

    def __init__(self, path: str, state: dict[str, Tensor]):
        self.path = path
        self.state = {name.removeprefix("module."): tensor for name, tensor in state.items()}
        self.taken: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self.state

    def first(self, *names: str) -> str:
        """The first of these names that there is; empty if there is none."""
        return next(filter(self.state.__contains__, names), "")

    def take(self, name: str) -> Tensor:
        """A tensor in fp32; records that it is imported."""
        if name not in self.state:
            raise UserError(f"{self.path}: {name} is missing; give a complete checkpoint of {PROGRAMS}")
        self.taken.add(name)
        return self.state[name].float()

    def check_all_taken(self) -> None:
        """Check that nothing would be lost."""
        unknown = [name for name in self.state if name not in self.taken and not IGNORED.match(name)]
        if unknown:
            text = "unknown parameters, which cannot be imported"
            raise UserError(f"{self.path}: {unknown[0]}: {text}; give a checkpoint of {PROGRAMS}")


def import_layers(source: Source, ramp: int) -> TrainedModel:
    """Import everything but embeddings and output layer. The checkpoint does not contain the ramp of adaptive spans."""
    positions = source.first(*POSITIONS)
    if not positions:
        raise UserError(
            f"{source.path}: has neither {POSITIONS[0]} nor {POSITIONS[1]}; give a checkpoint of {PROGRAMS} with "
            "relative positions (others cannot be imported)"
        )
    key_pe = source.take(positions)
    options = model_options(source, key_pe, ramp)
    parameters = {"decoder.positions.key": key_pe[0].t().flip(0)}
    for l in range(options["decoder_layers"]):
        for name, tensor in layer_parameters(source, l).items():
            parameters[f"decoder.layers.{l}.{name}"] = tensor
    if options["decoder_normalize_before"]:
        for end in AFFINE:
            parameters[f"decoder.layer_norm.{end}"] = source.take(f"out_norm.{end}")
    if FEEDBACK in source:
        parameters["decoder.memory.layer_weights"] = source.take(FEEDBACK)[0]
        options["memory_projections"] = "shared" if share_projections(parameters, options) else "per-layer"
    return TrainedModel(source.path, options, parameters)


def model_options(source: Source, key_pe: Tensor, ramp: int) -> dict[str, Any]:
    """The options of the model, by the names and sizes of its tensors.

    Args:
        source: the checkpoint.
        key_pe: its relative positions [1, E, S].
        ramp: of adaptive spans, in steps.
    """
    layers = 1 + max([int(name.split(".")[1]) for name in source.state if name.startswith("layers.")], default=-1)
    if layers == 0:
        raise UserError(f"{source.path}: layers.0 is missing; give a checkpoint of {PROGRAMS}")
    _, head_dim, span = key_pe.shape
    heads_dim, embed_dim = source.take("layers.0.attn.proj_query.weight").shape
    options: dict[str, Any] = {
        "arch": "feedback_transformer_lm" if FEEDBACK in source else "relative_transformer_lm",
        "decoder_layers": layers,
        "decoder_embed_dim": embed_dim,
        "decoder_attention_heads": heads_dim // head_dim,
        "decoder_head_dim": head_dim,
        "decoder_normalize_before": "out_norm.weight" in source,
        "attention_span": span,
        "adaptive_span": bool(source.first(*(f"layers.0.attn.attn.{name}" for name in SPANS))),
    }
    if options["adaptive_span"]:
        options["adaptive_span_ramp"] = ramp
    persistent = "layers.0.attn.attn.persistent_memory.key"
    if persistent in source:
        options.update(arch="all_attention_lm", persistent_memory_size=source.take(persistent).shape[2])
    else:
        options["decoder_ffn_embed_dim"] = source.take("layers.0.ff.fc1.weight").shape[0]
    return options


def layer_parameters(source: Source, l: int) -> dict[str, Tensor]:
    """The parameters of layer l, by their name within the fairseq layer."""
    layer = f"layers.{l}."
    attention = f"layers.{l}.attn.attn."
    persistent = f"{attention}persistent_memory."
    parameters, modules = {}, {"self_attn_layer_norm": "norm1"}
    for ours, theirs in PROJECTIONS.items():
        parameters[f"self_attn.{ours}.weight"] = source.take(f"{layer}attn.proj_{theirs}.weight")
    if f"{persistent}key" in source:
        parameters["persistent_memory.key"] = source.take(f"{persistent}key").transpose(1, 2)
        parameters["persistent_memory.value"] = source.take(f"{persistent}val")
    else:
        modules.update(FEED_FORWARD)
        for ours in PROJECTIONS:
            weight = parameters[f"self_attn.{ours}.weight"]
            parameters[f"self_attn.{ours}.bias"] = weight.new_zeros(len(weight))
    for ours, theirs in modules.items():
        for end in AFFINE:
            parameters[f"{ours}.{end}"] = source.take(f"{layer}{theirs}.{end}")
    span = source.first(*(f"{attention}{name}" for name in SPANS))
    if span:
        parameters["self_attn.adaptive_span.z"] = source.take(span).flatten()
    return parameters


def share_projections(parameters: dict[str, Tensor], options: dict[str, Any]) -> bool:
    """Replace the layers' key and value projections by the memory's, if they are the same in all layers. Returns
    whether they were replaced. They are not for a single layer, where shared and per-layer do not differ.

    Args:
        parameters: those of the model, by fairseq's names; changed in place.
        options: those of the model.
    """
    projections = {f"self_attn.{name}.{end}": f"{name}.{end}" for name in ("k_proj", "v_proj") for end in AFFINE}
    norm = {f"self_attn_layer_norm.{end}": f"layer_norm.{end}" for end in AFFINE}
    moved = {**projections, **(norm if options["decoder_normalize_before"] else {})}
    layers = range(options["decoder_layers"])
    for name in moved:
        first, *others = [parameters[f"decoder.layers.{l}.{name}"] for l in layers]
        if not others or not all(first.equal(other) for other in others):
            return False
    for layer_name, memory_name in moved.items():
        parameters[f"decoder.memory.{memory_name}"] = parameters[f"decoder.layers.0.{layer_name}"]
    for l in layers:
        for layer_name in projections:
            del parameters[f"decoder.layers.{l}.{layer_name}"]
    return True
