"""Parameters of the published programs (facebookresearch/adaptive-span and transformer-sequential) under fairseq's names.

Sizes are read off the tensors. Both programs project without biases, keep the relative positions [1, E, S] with the last
column for distance 1, and shared parameters once for each layer.
"""

import re
from dataclasses import dataclass
from typing import Dict, List

import torch
from torch import Tensor

from fb_fairseq.errors import UserError

# Constants, and duplicates of what stands elsewhere.
IGNORED = re.compile(r".*mask_template$|single_memory_attn_buf$|.*persistent_memory\.adaptive_span\..*")
ATTENTION = {"q_proj": "query", "k_proj": "key", "v_proj": "val", "out_proj": "out"}


class Source:
    """The state dict of a published program; it remembers what has been taken of it."""

    def __init__(self, path: str, state: Dict[str, Tensor]):
        self.path = path
        self.state = {name[len("module.") :] if name.startswith("module.") else name: x for name, x in state.items()}
        self.taken = set()

    def __contains__(self, name: str) -> bool:
        return name in self.state

    def take(self, name: str) -> Tensor:
        """
        Raises:
            UserError: it is not there.
        """
        if name not in self.state:
            raise UserError(
                f"{self.path}: {name} is missing; give a whole checkpoint of adaptive-span or transformer-sequential"
            )
        self.taken.add(name)
        return self.state[name].float()

    def check_all_taken(self) -> None:
        """
        Raises:
            UserError: something would be lost.
        """
        left = [name for name in self.state if name not in self.taken and not IGNORED.match(name)]
        if left:
            more = f", … ({len(left) - 3} more)" if len(left) > 3 else ""
            raise UserError(
                f"{self.path}: {', '.join(left[:3])}{more}: no such parameter is known; it cannot be imported"
            )


@dataclass
class Imported:
    """A model: options of fairseq-train, and its layers' parameters under this project's names."""

    options: Dict[str, object]
    parameters: Dict[str, Tensor]

    @property
    def arch(self) -> str:
        return str(self.options["arch"])


def import_layers(source: Source, ramp: int) -> Imported:
    """All but embeddings and output layer.

    Args:
        ramp: of adaptive spans, which the file does not tell.
    """
    sequential = "layers.0.attn.attn.key_pe" in source
    key_pe = source.take("layers.0.attn.attn.key_pe" if sequential else "key_pe")
    layers = 1 + max([int(name.split(".")[1]) for name in source.state if name.startswith("layers.")], default=-1)
    if layers == 0:
        raise UserError(
            f"{source.path}: layers.0 is missing; give a checkpoint of adaptive-span or transformer-sequential"
        )
    _, width, span = key_pe.shape
    query = source.take("layers.0.attn.proj_query.weight")
    pre_norm = "out_norm.weight" in source
    feedback = "single_memory_attn_params" in source
    persistent = "layers.0.attn.attn.persistent_memory.key" in source
    spans = span_name(0, sequential) in source
    arch = "all_attention_lm" if persistent else "feedback_transformer_lm" if feedback else "relative_transformer_lm"
    options = {
        "arch": arch,
        "decoder_layers": layers,
        "decoder_embed_dim": query.shape[1],
        "decoder_attention_heads": query.shape[0] // width,
        "decoder_head_dim": width,
        "decoder_normalize_before": pre_norm,
        "attention_span": span,
        "adaptive_span": spans,
    }
    if spans:
        options["adaptive_span_ramp"] = ramp
    if persistent:
        options["persistent_memory_size"] = source.take("layers.0.attn.attn.persistent_memory.key").shape[2]
    else:
        options["decoder_ffn_embed_dim"] = source.take("layers.0.ff.fc1.weight").shape[0]
    parameters = {"decoder.positions.key": key_pe[0].t().flip(0)}
    for l in range(layers):
        if sequential:
            source.take(f"layers.{l}.attn.attn.key_pe")  # the same
        for name, value in layer_parameters(source, l, persistent, spans, sequential).items():
            parameters[f"decoder.layers.{l}.{name}"] = value
    if pre_norm:
        for end in ("weight", "bias"):
            parameters[f"decoder.layer_norm.{end}"] = source.take(f"out_norm.{end}")
    if feedback:
        parameters["decoder.memory.layer_weights"] = source.take("single_memory_attn_params")[0]
        options["memory_projections"] = "shared" if share_projections(parameters, layers, pre_norm) else "per-layer"
    return Imported(options, parameters)


def span_name(layer: int, sequential: bool) -> str:
    name = "adaptive_span.mask.size_ratio" if sequential else "adaptive_span._mask.current_val"
    return f"layers.{layer}.attn.attn.{name}"


def layer_parameters(source: Source, l: int, persistent: bool, spans: bool, sequential: bool) -> Dict[str, Tensor]:
    own = f"layers.{l}."
    result = {}
    for name, theirs in ATTENTION.items():
        weight = source.take(f"{own}attn.proj_{theirs}.weight")
        result[f"self_attn.{name}.weight"] = weight
        if not persistent:
            result[f"self_attn.{name}.bias"] = weight.new_zeros(len(weight))
    modules = {"norm1": "self_attn_layer_norm"}
    if persistent:
        memory = f"{own}attn.attn.persistent_memory."
        result["persistent_memory.key"] = source.take(memory + "key").transpose(1, 2)
        result["persistent_memory.value"] = source.take(memory + "val")
    else:
        modules.update({"ff.fc1": "fc1", "ff.fc2": "fc2", "norm2": "final_layer_norm"})
    for theirs, ours in modules.items():
        for end in ("weight", "bias"):
            result[f"{ours}.{end}"] = source.take(f"{own}{theirs}.{end}")
    if spans:
        result["self_attn.adaptive_span.z"] = source.take(span_name(l, sequential)).flatten()
    return result


def share_projections(parameters: Dict[str, Tensor], layers: int, pre_norm: bool) -> bool:
    """Where all layers have the same key and value projections (and with pre-norm the same norm before them), replace
    them by the memory's."""
    names = {
        f"self_attn.{projection}.{end}": f"{projection}.{end}"
        for projection in ("k_proj", "v_proj")
        for end in ("weight", "bias")
    }
    norm = {f"self_attn_layer_norm.{end}": f"layer_norm.{end}" for end in ("weight", "bias")} if pre_norm else {}
    for name in {**names, **norm}:
        first, *others = [parameters[f"decoder.layers.{l}.{name}"] for l in range(layers)]
        if not others or not all(first.equal(other) for other in others):
            return False
    for name, ours in {**names, **norm}.items():
        parameters[f"decoder.memory.{ours}"] = parameters[f"decoder.layers.0.{name}"]
    for l in range(layers):
        for name in names:
            del parameters[f"decoder.layers.{l}.{name}"]
    return True


def import_words(source: Source, places: List[int], symbols: int) -> Imported:
    """Embeddings and output layer, for a dictionary.

    Args:
        places: where each symbol of the file's vocabulary stands in the dictionary.
        symbols: how many the dictionary has; those that the file does not know are never predicted.
    """
    output = "out.out_emb" if "out.out_emb.weight" in source else "out_emb"
    bias = source.take(f"{output}.bias")
    parameters = {
        "decoder.embed_tokens.weight": placed(source.take("in_emb.weight"), places, symbols),
        "decoder.output_projection.weight": placed(source.take(f"{output}.weight"), places, symbols),
        # So small that exp() of it is zero, and still a number in fp16.
        "decoder.output_projection.bias": placed(bias, places, symbols, missing=-1e4),
    }
    return Imported({}, parameters)


def placed(rows: Tensor, places: List[int], symbols: int, missing: float = 0.0) -> Tensor:
    result = rows.new_full((symbols, *rows.shape[1:]), missing)
    result[places] = rows
    return result


def is_adaptive(source: Source) -> bool:
    return "in_emb.emb_layers.0.weight" in source


def vocabulary(source: Source) -> int:
    """How many symbols the file's model knows."""
    if is_adaptive(source):
        return sum(len(source.take(f"in_emb.emb_layers.{i}.weight")) for i in range(clusters(source)))
    return len(source.take("in_emb.weight"))


def clusters(source: Source) -> int:
    return sum(bool(re.match(r"in_emb\.emb_layers\.\d+\.weight$", name)) for name in source.state)


def import_adaptive_words(source: Source, places: List[int]) -> Imported:
    """Adaptive embeddings and softmax.

    They become untied ones: the programs project the first cluster too, where fairseq's softmax does not.

    Raises:
        UserError: the output layers have biases, which fairseq's have not; or symbols would change their cluster.
    """
    n = clusters(source)
    tables = [source.take(f"in_emb.emb_layers.{i}.weight") for i in range(n)]
    cuts = [sum(map(len, tables[: i + 1])) for i in range(n)]
    shortlist = cuts[0]
    biases = [source.take(name) for name in source.state if re.match(r"out_emb\..*\.bias$", name)]
    if any(bias.abs().max() > 0 for bias in biases):
        raise UserError(
            f"{source.path}: its adaptive softmax has output biases, which fairseq's AdaptiveSoftmax has not; only one "
            "whose biases are zero can be imported"
        )
    if sorted(places) != list(range(cuts[-1])) or places[shortlist:] != list(range(shortlist, cuts[-1])):
        raise UserError(
            f"{source.path}: an adaptive softmax without biases cannot rule out fairseq's special symbols; import needs "
            "<s>, <pad>, </s> (or <eos>) and <unk> among the most frequent symbols of --dict"
        )
    order = torch.tensor(places[:shortlist]).argsort()
    width = source.take("in_emb.emb_projs.0").shape[0]
    factor = width / tables[1].shape[1] if n > 1 else 4.0
    text = ",".join(map(str, cuts[:-1]))
    options = {
        "adaptive_input": True,
        "adaptive_input_cutoff": text,
        "adaptive_softmax_cutoff": text,
        "adaptive_input_factor": factor,
        "adaptive_softmax_factor": factor,
    }
    parameters = {}
    for i, table in enumerate(tables):
        words = source.take(f"out_emb.out_layers.{i}.weight")
        projection = source.take(f"out_emb.out_projs.{i}")
        if i == 0:
            table, words = table[order], words[order]
            # A cluster's logit counts from the end there.
            head = torch.cat([words, source.take("out_emb.cluster_proj.weight").flip(0)])
            parameters["decoder.adaptive_softmax.head.weight"] = head @ projection.t()
        else:
            parameters[f"decoder.adaptive_softmax.tail.{i - 1}.0.weight"] = projection.t()
            parameters[f"decoder.adaptive_softmax.tail.{i - 1}.2.weight"] = words
        parameters[f"decoder.embed_tokens.embeddings.{i}.0.weight"] = table
        parameters[f"decoder.embed_tokens.embeddings.{i}.1.weight"] = source.take(f"in_emb.emb_projs.{i}")
    return Imported(options, parameters)
