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
from typing import NamedTuple

from torch import Tensor

from fb_fairseq.errors import UserError
from fb_fairseq.trained_model import TrainedModel

PROGRAMS = "adaptive-span or transformer-sequential"
# Not imported: constants, buffers, and the adaptive spans' second entry, under the persistent memory.
IGNORED = re.compile(r".*mask_template$|single_memory_attn_buf$|.*persistent_memory\.adaptive_span\..*")
PROJECTIONS = {"q_proj": "query", "k_proj": "key", "v_proj": "val", "out_proj": "out"}
AFFINE = ("weight", "bias")
PERSISTENT_KEY = "layers.{}.attn.attn.persistent_memory.key"
SEQUENTIAL_POSITIONS = "layers.{}.attn.attn.key_pe"


class Source:
    """The state dict of an original program's checkpoint. It records which tensors have been imported."""

    def __init__(self, path: str, state: dict[str, Tensor]):
        self.path = path
        self.state = {name.removeprefix("module."): tensor for name, tensor in state.items()}
        self.taken: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self.state

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
            more = f", … ({len(unknown) - 3} more)" if len(unknown) > 3 else ""
            raise UserError(
                f"{self.path}: {', '.join(unknown[:3])}{more}: unknown parameters, which cannot be imported; give a "
                f"checkpoint of {PROGRAMS}"
            )


class Kind(NamedTuple):
    """The kind of model in a checkpoint."""

    sequential: bool  # saved by transformer-sequential, else by adaptive-span
    layers: int  # number of layers
    pre_norm: bool  # layer norms come before the sublayers, and one after the last layer
    feedback: bool  # it is a Feedback Transformer
    persistent: bool  # it is an all-attention network
    spans: bool  # it has adaptive spans

    @classmethod
    def of(cls, source: Source) -> "Kind":
        """Determine the kind of a checkpoint's model from the names of its parameters."""
        layers = 1 + max([int(name.split(".")[1]) for name in source.state if name.startswith("layers.")], default=-1)
        if layers == 0:
            raise UserError(f"{source.path}: layers.0 is missing; give a checkpoint of {PROGRAMS}")
        sequential = SEQUENTIAL_POSITIONS.format(0) in source
        return cls(
            sequential=sequential,
            layers=layers,
            pre_norm="out_norm.weight" in source,
            feedback="single_memory_attn_params" in source,
            persistent=PERSISTENT_KEY.format(0) in source,
            spans=span_name(0, sequential) in source,
        )

    @property
    def arch(self) -> str:
        """The architecture's name in fairseq."""
        if self.persistent:
            return "all_attention_lm"
        return "feedback_transformer_lm" if self.feedback else "relative_transformer_lm"


def span_name(layer: int, sequential: bool) -> str:
    """The original name of a layer's adaptive spans."""
    name = "adaptive_span.mask.size_ratio" if sequential else "adaptive_span._mask.current_val"
    return f"layers.{layer}.attn.attn.{name}"


def import_layers(source: Source, ramp: int) -> TrainedModel:
    """Import everything but embeddings and output layer. The checkpoint does not contain the ramp of adaptive spans."""
    kind = Kind.of(source)
    key_pe = source.take(SEQUENTIAL_POSITIONS.format(0) if kind.sequential else "key_pe")
    parameters = {"decoder.positions.key": key_pe[0].t().flip(0)}
    options = model_options(source, kind, key_pe, ramp)
    for l in range(kind.layers):
        if kind.sequential:
            source.take(SEQUENTIAL_POSITIONS.format(l))  # the same tensor for each layer
        for name, tensor in layer_parameters(source, l, kind).items():
            parameters[f"decoder.layers.{l}.{name}"] = tensor
    if kind.pre_norm:
        for end in AFFINE:
            parameters[f"decoder.layer_norm.{end}"] = source.take(f"out_norm.{end}")
    if kind.feedback:
        parameters["decoder.memory.layer_weights"] = source.take("single_memory_attn_params")[0]
        options["memory_projections"] = "shared" if share_projections(parameters, kind) else "per-layer"
    return TrainedModel(source.path, options, parameters)


def model_options(source: Source, kind: Kind, key_pe: Tensor, ramp: int) -> dict[str, object]:
    """The options of the model, with the sizes of its tensors."""
    _, head_dim, span = key_pe.shape
    heads_dim, embed_dim = source.take("layers.0.attn.proj_query.weight").shape
    options: dict[str, object] = {
        "arch": kind.arch,
        "decoder_layers": kind.layers,
        "decoder_embed_dim": embed_dim,
        "decoder_attention_heads": heads_dim // head_dim,
        "decoder_head_dim": head_dim,
        "decoder_normalize_before": kind.pre_norm,
        "attention_span": span,
        "adaptive_span": kind.spans,
    }
    if kind.spans:
        options["adaptive_span_ramp"] = ramp
    if kind.persistent:
        options["persistent_memory_size"] = source.take(PERSISTENT_KEY.format(0)).shape[2]
    else:
        options["decoder_ffn_embed_dim"] = source.take("layers.0.ff.fc1.weight").shape[0]
    return options


def layer_parameters(source: Source, l: int, kind: Kind) -> dict[str, Tensor]:
    """The parameters of layer l, by their name within the fairseq layer."""
    prefix = f"layers.{l}."
    parameters = {}
    for ours, theirs in PROJECTIONS.items():
        weight = source.take(f"{prefix}attn.proj_{theirs}.weight")
        parameters[f"self_attn.{ours}.weight"] = weight
        if not kind.persistent:
            parameters[f"self_attn.{ours}.bias"] = weight.new_zeros(len(weight))
    modules = {"norm1": "self_attn_layer_norm"}
    if kind.persistent:
        memory = f"{prefix}attn.attn.persistent_memory."
        parameters["persistent_memory.key"] = source.take(memory + "key").transpose(1, 2)
        parameters["persistent_memory.value"] = source.take(memory + "val")
    else:
        modules.update({"ff.fc1": "fc1", "ff.fc2": "fc2", "norm2": "final_layer_norm"})
    for theirs, ours in modules.items():
        for end in AFFINE:
            parameters[f"{ours}.{end}"] = source.take(f"{prefix}{theirs}.{end}")
    if kind.spans:
        parameters["self_attn.adaptive_span.z"] = source.take(span_name(l, kind.sequential)).flatten()
    return parameters


def share_projections(parameters: dict[str, Tensor], kind: Kind) -> bool:
    """Replace the layers' key and value projections by the memory's, if they are the same in all layers. Returns
    whether they were replaced. They are not for a single layer, where shared and per-layer do not differ."""
    projections = {f"self_attn.{name}.{end}": f"{name}.{end}" for name in ("k_proj", "v_proj") for end in AFFINE}
    norm = {f"self_attn_layer_norm.{end}": f"layer_norm.{end}" for end in AFFINE} if kind.pre_norm else {}
    for name in [*projections, *norm]:
        first, *others = [parameters[f"decoder.layers.{l}.{name}"] for l in range(kind.layers)]
        if not others or not all(first.equal(other) for other in others):
            return False
    for layer_name, memory_name in {**projections, **norm}.items():
        parameters[f"decoder.memory.{memory_name}"] = parameters[f"decoder.layers.0.{layer_name}"]
    for l in range(kind.layers):
        for layer_name in projections:
            del parameters[f"decoder.layers.{l}.{layer_name}"]
    return True
