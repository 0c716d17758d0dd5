"""``--init-from-transformer``: parameters of a trained vanilla Transformer for a model with feedback memory.

Fan et al., v1 §3.2. What both have under the same name is loaded. Shared projections are derived from the layers' own;
what a vanilla model has not (the memory's weights, relative positions) stays as it was initialised.
"""

import logging
import math
import os
import re
from dataclasses import dataclass
from enum import Enum
from typing import Dict, List

import torch
from omegaconf import OmegaConf
from torch import Tensor

from fb_fairseq.errors import UserError
from fb_fairseq.models.pruning import count_layers, parse_layers
from fb_fairseq.option_fields import option

logger = logging.getLogger(__name__)

RULES = ("mean", "first", "last")
OPTION = "--init-from-transformer"


@dataclass(frozen=True)
class InitialisationOptions:
    """Options of starting from a vanilla Transformer; the names are the command line's."""

    init_from_transformer: str = option(
        "", "checkpoint of a vanilla Transformer whose parameters a new model starts with"
    )
    init_layers: str = option("", "which of its decoder layers to take, as 0,2,5; default: all")
    init_shared_projections: str = option(
        "mean",
        "mean, first, last: which of the layers' own projections the memory's shared one is made of",
    )


# What a vanilla Transformer does not have.
MAY_BE_NEW = re.compile(
    r"decoder\.(memory\.layer_weights|positions\.|layers\.\d+\.self_attn\.adaptive_span|output_projection\.bias)"
)
# Buffers, and the unused duplicates that fairseq 0.12.2's encoder layers have and other versions have not.
NO_PARAMETERS = re.compile(
    r".*\.version$|.*\._float_tensor$|encoder\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)$"
)
DERIVED = re.compile(r"decoder\.memory\.(k_proj|v_proj|layer_norm)\.")


def initialise_if_asked(model, cfg) -> None:
    """Initialise a new model if ``cfg.init_from_transformer`` names a checkpoint, and clear the option.

    The option is cleared so that a saved configuration does not name the file: evaluation and generation never need it.
    Nor does a run that resumes from a checkpoint of its own, which is loaded later and takes precedence. So a problem
    with the file is only recorded, as ``model.initialisation_problem``; ``fb_fairseq.streams.resume.after_load``
    refuses to train if no checkpoint was loaded.

    Args:
        model: an ``InitialisedModel``.

    Raises:
        UserError: the options contradict each other.
    """
    path, layers, rule = cfg.init_from_transformer, cfg.init_layers, str(cfg.init_shared_projections)
    if rule not in RULES:
        raise UserError(f"--init-shared-projections {rule}: unknown, choose of {', '.join(RULES)}")
    cfg.init_from_transformer = cfg.init_layers = ""
    if not path:
        if layers:
            raise UserError(f"--init-layers {layers}: has no effect without {OPTION}; give that too")
        return
    model.initialisation_problem = ""
    try:
        if not os.path.isfile(path):
            raise UserError(f"{OPTION} {path}: no such file; give a vanilla Transformer's checkpoint")
        initialise(model, path, layers, rule)
    except UserError as error:
        model.initialisation_problem = str(error)


def initialise(model, path: str, layers: str = "", rule: str = "mean") -> None:
    """Copy and derive a model's parameters from a vanilla Transformer's checkpoint, and log what was done.

    Args:
        layers: which of its decoder layers to take, as ``0,2,5``; empty: all.
        rule: of which layers the shared projections are made: the mean of all taken, the first, the last.
    """
    try:
        checkpoint = torch.load(path, map_location="cpu")
        source = checkpoint["model"]
        saved = checkpoint["cfg"]["model"] if checkpoint.get("cfg") else checkpoint["args"]  # before 0.11: a Namespace
    except Exception as error:
        raise UserError(
            f"{OPTION} {path}: no whole checkpoint of fairseq ({type(error).__name__}); give one"
        ) from error
    source = {name: value for name, value in source.items() if not NO_PARAMETERS.match(name)}
    own = {name: value for name, value in model.state_dict().items() if not NO_PARAMETERS.match(name)}
    check_kind(path, source, own)
    check_options(path, saved, model)
    modernise(source)
    taken = layers_to_take(path, layers, source, count_layers(own))
    values = {name: source[vanilla_name(name, taken)] for name in own if vanilla_name(name, taken) in source}
    derived = {}
    if any(DERIVED.match(name) and name not in values for name in own):
        normalised = "decoder.memory.layer_norm.weight" in own
        chosen = {"mean": taken, "first": taken[:1], "last": taken[-1:]}[rule]
        derived = shared_projections(source, chosen, normalised)
    derived.update(rescaled_embeddings(path, values, saved, model))
    values.update(derived)
    new = [name for name in own if name not in values and MAY_BE_NEW.match(name)]
    used = {vanilla_name(name, taken) for name in own}
    if any(name.startswith("decoder.memory.k_proj") for name in derived):
        used |= {n for l in taken for n in source if re.match(rf"decoder\.layers\.{l}\.self_attn\.[kv]_proj", n)}
    left = [name for name in source if name not in used]
    check_fit(path, own, values, new)
    check_ties(path, own, values)
    check_left(path, [name for name in left if not may_be_left(name, taken, model)])
    with torch.no_grad():
        for name, value in values.items():
            own[name].copy_(value)
    groups = {
        "loaded": [name for name in values if name not in derived],
        "derived": list(derived),
        "new": new,
        "left in the file": left,
    }
    report(path, groups)


def vanilla_name(name: str, taken: List[int]) -> str:
    """The name of a parameter in the file: the same, but for the layer's number."""
    found = re.match(r"(decoder\.layers\.)(\d+)(\..*)", name)
    return f"{found[1]}{taken[int(found[2])]}{found[3]}" if found else name


def check_kind(path: str, source: Dict[str, Tensor], own: Dict[str, Tensor]) -> None:
    def kind(names):
        return "encoder-decoder" if any(name.startswith("encoder.") for name in names) else "language model"

    if not any(name.startswith("decoder.layers.") for name in source):
        raise UserError(f"{OPTION} {path}: no Transformer (it has no decoder.layers); give a checkpoint of one")
    if kind(source) != kind(own):
        raise UserError(
            f"{OPTION} {path}: holds a(n) {kind(source)}; the model is a(n) {kind(own)}; give one of its kind"
        )


def option_of(cfg, name: str):
    """An option of a saved model: in a Namespace, a flat or a nested configuration; None where it is not there."""
    cfg = OmegaConf.to_container(cfg) if OmegaConf.is_config(cfg) else cfg if isinstance(cfg, dict) else vars(cfg)
    part, _, rest = name.partition("_")
    nested = cfg.get(part)
    return nested[rest] if isinstance(nested, dict) and rest in nested else cfg.get(name)


def check_options(path: str, saved, model) -> None:
    """What names and shapes do not show."""
    own = {
        "activation_fn": model.decoder.options.activation_fn,
        "decoder_attention_heads": model.decoder.options.decoder_attention_heads,
        "decoder_normalize_before": model.decoder.options.decoder_normalize_before,
    }
    if hasattr(model, "encoder"):
        cfg = model.encoder.cfg.encoder
        own.update(encoder_attention_heads=cfg.attention_heads, encoder_normalize_before=cfg.normalize_before)
        own["no_token_positional_embeddings"] = model.encoder.cfg.no_token_positional_embeddings
    for name, value in own.items():
        theirs = option_of(saved, name)
        theirs = str(theirs) if isinstance(theirs, Enum) else theirs
        if theirs is not None and theirs != value:
            flag = f"--{name.replace('_', '-')}"
            raise UserError(f"{OPTION} {path}: was trained with {flag} {theirs}, not {value}; give the same")


def modernise(source: Dict[str, Tensor]) -> None:
    """Bring the names of old checkpoints up to date, in place: as fairseq does for its own models."""
    for name in list(source):
        fused = re.match(r"(.*_attn\.)in_proj_(weight|bias)$", name)
        if fused:
            for part, value in zip("qkv", source.pop(name).chunk(3)):
                source[f"{fused[1]}{part}_proj.{fused[2]}"] = value
        norm = re.match(r"((?:en|de)coder)(\.layers\.\d+\.)layer_norms\.(\d)(\..*)$", name)
        if norm:
            kinds = ["self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"]
            if norm[1] == "encoder":
                del kinds[1]
            source[f"{norm[1]}{norm[2]}{kinds[int(norm[3])]}{norm[4]}"] = source.pop(name)
    name = "decoder.output_projection.weight"
    if name not in source and not any(n.startswith("decoder.adaptive_softmax") for n in source):
        weight = source.pop("decoder.embed_out", source.get("decoder.embed_tokens.weight"))
        if weight is not None:
            source[name] = weight


def layers_to_take(path: str, text: str, source: Dict[str, Tensor], wanted: int) -> List[int]:
    there = count_layers(source)
    if not text:
        if there != wanted:
            raise UserError(
                f"{OPTION} {path}: has {there} decoder layers, the model {wanted}; choose {wanted} of them with "
                f"--init-layers, as {','.join(str(l * there // wanted) for l in range(wanted))}"
            )
        return list(range(there))
    taken = parse_layers("--init-layers", text)
    if len(taken) != wanted or min(taken) < 0 or max(taken) >= there:
        raise UserError(f"--init-layers {text}: give {wanted} of the layers 0 to {there - 1} of {path}")
    return taken


def shared_projections(source: Dict[str, Tensor], layers: List[int], normalised: bool) -> Dict[str, Tensor]:
    """One key and value projection of the memory: the mean of these layers' own.

    With pre-norm a layer's own norm (γ, β) comes before its projection: ``W (γ n + β) + b`` of a normalised memory n is
    ``W diag(γ) n + (W β + b)``. So γ and β move into weight and bias, and the memory's norm is neutral.
    """
    derived = {}
    for projection in ("k_proj", "v_proj"):
        weights, biases = [], []
        for l in layers:
            layer = f"decoder.layers.{l}"
            try:
                weight, bias = (source[f"{layer}.self_attn.{projection}.{part}"] for part in ("weight", "bias"))
                if normalised:
                    scale, shift = (source[f"{layer}.self_attn_layer_norm.{part}"] for part in ("weight", "bias"))
                    weight, bias = weight * scale, bias + weight @ shift
            except KeyError:
                return {}  # check_fit names what is missing
            weights.append(weight)
            biases.append(bias)
        derived[f"decoder.memory.{projection}.weight"] = torch.stack(weights).mean(0)
        derived[f"decoder.memory.{projection}.bias"] = torch.stack(biases).mean(0)
    if normalised:
        D = derived["decoder.memory.k_proj.weight"].shape[1]
        derived["decoder.memory.layer_norm.weight"] = torch.ones(D)
        derived["decoder.memory.layer_norm.bias"] = torch.zeros(D)
    return derived


def rescaled_embeddings(path: str, values: Dict[str, Tensor], saved, model) -> Dict[str, Tensor]:
    """Embeddings, where one of the file's model and this one multiplies them by sqrt(width), and the other does not."""
    name, decoder = "decoder.embed_tokens.weight", model.decoder
    scaled = option_of(saved, "share_decoder_input_output_embed") or option_of(saved, "adaptive_input")
    if option_of(saved, "relative_positions") is None:  # one of fairseq's own models
        scaled = not option_of(saved, "no_scale_embedding")
    if bool(scaled) == (decoder.embed_scale != 1):
        return {}
    projection = getattr(decoder, "output_projection", None)
    tied = projection is not None and name in values and projection.weight is decoder.embed_tokens.weight
    if hasattr(model, "encoder") or tied or name not in values:
        raise UserError(
            f"{OPTION} {path}: its embeddings are {'' if scaled else 'not '}multiplied by sqrt(width), the model's are "
            f"{'not' if scaled else 'so'}; give the same --no-scale-embedding or --share-decoder-input-output-embed"
        )
    width = values[name].shape[1]
    return {name: values[name] * (math.sqrt(width) if scaled else 1 / math.sqrt(width))}


def check_fit(path: str, own: Dict[str, Tensor], values: Dict[str, Tensor], new: List[str]) -> None:
    missing = [name for name in own if name not in values and name not in new]
    misfits = [
        f"{name} {list(value.shape)} (the model needs {list(own[name].shape)})"
        for name, value in values.items()
        if value.shape != own[name].shape
    ]
    if any("embed_tokens" in misfit for misfit in misfits):
        misfits.append("is it another dictionary?")
    problems = [f"does not have {summary(missing)}"] if missing else []
    problems += [f"has {', '.join(misfits[:4])}"] if misfits else []
    if problems:
        raise UserError(f"{OPTION} {path}: {'; and '.join(problems)}; give a checkpoint of the same sizes and options")


def check_ties(path: str, own: Dict[str, Tensor], values: Dict[str, Tensor]) -> None:
    """What the model shares must be one in the file too."""
    first: Dict[int, str] = {}
    for name, value in values.items():
        other = first.setdefault(own[name].data_ptr(), name)
        if other != name and not value.equal(values[other]):
            raise UserError(
                f"{OPTION} {path}: its {other} and {name} differ, and the model has one for both; leave out "
                "--share-decoder-input-output-embed or --share-all-embeddings, as it was trained"
            )


def may_be_left(name: str, taken: List[int], model) -> bool:
    """Whether a parameter of the file may stay unused: layers that were not taken, and the absolute positions of a
    language model that has relative ones."""
    layer = re.match(r"decoder\.layers\.(\d+)\.", name)
    if layer:
        return int(layer[1]) not in taken
    return name.startswith("decoder.embed_positions") and model.decoder.options.relative_positions != "none"


def check_left(path: str, names: List[str]) -> None:
    if names:
        raise UserError(
            f"{OPTION} {path}: has {summary(names)}, which the model has not; give the options that it was trained with"
        )


def summary(names: List[str], most: int = 4) -> str:
    """The names, layers and parts together: ``decoder.layers.0.fc1, decoder.memory.k_proj, … (12 more)``."""
    whole = [re.sub(r"\.(weight|bias)$", "", name) for name in names]
    modules = list(dict.fromkeys(whole))
    more = len(modules) - most
    return ", ".join(modules[:most]) + (f", … ({more} more)" if more > 0 else "")


def report(path: str, groups: Dict[str, List[str]]) -> None:
    """Log how many parameters went which way, and the names of those that were not simply loaded."""
    lines = []
    for what, names in groups.items():
        named = f" ({summary(names)})" if names and what != "loaded" else ""
        lines.append(f"{len(names)} {what}{named}")
    logger.info(f"parameters from {path}: {', '.join(lines)}")
