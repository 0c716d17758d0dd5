"""``--init-from-transformer``: start a new model with the parameters of a trained vanilla Transformer.

Fan et al., arXiv 2002.09402, v1 §3.2. Each parameter of the new model is

- loaded, if the file has one of the same name (with ``--init-layers``, the same but for the layer's number);
- derived: the memory's shared key and value projections from those of the file's layers, and embeddings that only one
  of the two models multiplies by sqrt(D);
- new, if a vanilla Transformer does not have it (``MAY_BE_NEW``): it keeps its random initialisation.

Anything else that the model needs is an error. So is what the file has and the model does not use, but for layers that
are not taken, and for the file's absolute positions where the model's are relative.
"""

import logging
import math
import re
from dataclasses import dataclass
from typing import NamedTuple

import torch
from fairseq.models import FairseqEncoderDecoderModel
from torch import Tensor

from fb_fairseq.checksums import check_dictionaries, dictionary_checksums
from fb_fairseq.command_line import option
from fb_fairseq.errors import UserError, flag
from fb_fairseq.meaning import check_same_meaning
from fb_fairseq.models.checkpoints import read_checkpoint
from fb_fairseq.models.former_names import update_names
from fb_fairseq.models.pruning import count_layers, parse_layers
from fb_fairseq.tensor_files import using
from fb_fairseq.trained_model import LEFT_OUT, TrainedModel

logger = logging.getLogger(__name__)

OPTION = flag("init_from_transformer")
EMBEDDINGS = "decoder.embed_tokens.weight"
MAY_BE_NEW = re.compile(
    r"decoder\.(memory\.layer_weights|positions\.|layers\.\d+\.self_attn\.adaptive_span|output_projection\.bias)"
)
SHARED_PROJECTION = re.compile(r"decoder\.memory\.(k_proj|v_proj|layer_norm)\.")
NAMES_SHOWN = 4  # in a message; more would hide what it says


@dataclass(frozen=True)
class InitialisationOptions:
    """Options of starting with a vanilla Transformer's parameters, named as on the command line."""

    init_from_transformer: str = option("", "checkpoint of a vanilla Transformer to initialise a new model from")
    init_layers: str = option("", "decoder layers to take from there, counted from 0, such as 0,2,5; default: all")
    init_shared_projections: str = option(
        "mean",
        "how to initialise the memory's shared key and value projections: with the mean of those of the layers taken, "
        "or with those of the first or last of these layers",
        ("mean", "first", "last"),
    )


class Plan(NamedTuple):
    """The origin of each of the new model's parameters.

    Attributes:
        loaded: values from the file, by the names in the new model.
        derived: values computed from those in the file, by the names in the new model.
        new: names of parameters that stay as they were initialised.
        unused: names of the file's parameters that the model does not use.
    """

    loaded: dict[str, Tensor]
    derived: dict[str, Tensor]
    new: list[str]
    unused: list[str]

    @property
    def values(self) -> dict[str, Tensor]:
        """The values to be copied, loaded and derived."""
        return {**self.loaded, **self.derived}


def initialise_if_asked(model, cfg) -> None:
    """Initialise a new model if ``cfg.init_from_transformer`` names a checkpoint, and clear the option.

    The option is cleared so that a saved configuration does not name the file: evaluation and generation never need it.
    Nor does a run that resumes from a checkpoint of its own, which is loaded later and takes precedence. So a problem
    with the file is only recorded, as ``model.initialisation_problem``; ``fb_fairseq.streams.hooks.after_load``
    refuses to train if no checkpoint was loaded.

    Args:
        model: see ``initialise``.
        cfg: its configuration, with ``InitialisationOptions``.
    """
    path = cfg.init_from_transformer
    layers = cfg.init_layers
    rule = str(cfg.init_shared_projections)
    cfg.init_from_transformer = cfg.init_layers = ""
    if not path:
        return
    model.initialisation_problem = ""
    try:
        with using(f"{OPTION} {path}"):
            initialise(model, path, layers, rule)
    except UserError as error:
        model.initialisation_problem = str(error)
    except OSError as error:
        model.initialisation_problem = f"{OPTION} {path}: {error.strerror}; give a vanilla Transformer's checkpoint"


def initialise(model, path: str, layers: str = "", rule: str = "mean") -> None:
    """Set a model's parameters from a vanilla Transformer's checkpoint, and log where each comes from.

    Args:
        model: a language model with a ``TransformerStack``, or a ``feedback_decoder``.
        path: the checkpoint.
        layers: which of the file's decoder layers to take, as ``0,2,5``; empty: all.
        rule: which of these layers the shared projections are derived from: mean, first or last.
    """
    source = read_checkpoint(path)
    source.path = f"{OPTION} {path}"
    own = {name: value for name, value in model.state_dict().items() if not LEFT_OUT.match(name)}
    sides = {"source": getattr(model, "encoder", model.decoder), "target": model.decoder}
    own_dictionaries = dictionary_checksums({name: part.dictionary for name, part in sides.items()})
    check_dictionaries(source.path, source.dictionaries, own_dictionaries)
    check_options(source, model)
    update_names(source.parameters)
    taken = choose_layers(source, layers, count_layers(own))
    plan = make_plan(source, model, own, taken, rule)
    check_fit(source, own, plan)
    check_ties(source, own, plan)
    check_unused(source, model, plan, taken)
    with torch.no_grad():
        for name, value in plan.values.items():
            own[name].copy_(value)
    report(path, plan)


# Checks before parameters are compared.


def check_options(source: TrainedModel, model) -> None:
    """Check the options that change what a model computes, but not the names and shapes of its parameters."""
    options = model.decoder.options
    names = ["activation_fn", "decoder_attention_heads", "decoder_normalize_before"]
    if options.adaptive_span and source.options.get("adaptive_span"):
        names += ["adaptive_span", "adaptive_span_ramp", "attention_span"]
    own = {name: getattr(options, name) for name in names}
    if isinstance(model, FairseqEncoderDecoderModel):
        encoder = ("encoder_attention_heads", "encoder_normalize_before", "no_token_positional_embeddings")
        own.update({name: getattr(model.encoder.cfg, name) for name in encoder})
    check_same_meaning(source.path, source.options, own, "give the same")


def choose_layers(source: TrainedModel, text: str, wanted: int) -> list[int]:
    """The numbers of the file's decoder layers to take.

    Args:
        source: the file.
        text: the value of ``--init-layers``; empty: all.
        wanted: number of decoder layers of the new model.
    """
    available = count_layers(source.parameters)
    if not text:
        if available < wanted:
            raise source.error(f"has {available} decoder layers, the model {wanted}; give a Transformer with as many")
        if available > wanted:
            evenly_spaced = ",".join(str(l * available // wanted) for l in range(wanted))
            raise source.error(
                f"has {available} decoder layers, the model {wanted}; choose {wanted} of them with "
                f"{flag('init_layers')}, for example {evenly_spaced}"
            )
        return list(range(available))
    taken = parse_layers(flag("init_layers"), text)
    if len(taken) != wanted or max(taken) >= available:
        raise UserError(
            f"{flag('init_layers')} {text}: give {wanted} of the layers 0 to {available - 1} of {source.path}"
        )
    return taken


# Where the parameters come from.


def make_plan(source: TrainedModel, model, own: dict[str, Tensor], taken: list[int], rule: str) -> Plan:
    """Decide where each of the model's parameters ``own`` comes from; see the top of this module."""
    source_names = {name: name_in_file(name, taken) for name in own}
    found = {name: source.parameters[theirs] for name, theirs in source_names.items() if theirs in source.parameters}
    derived = {}
    used = set(source_names.values())
    if any(SHARED_PROJECTION.match(name) and name not in found for name in own):
        chosen = {"mean": taken, "first": taken[:1], "last": taken[-1:]}[rule]
        derived = shared_projections(source.parameters, chosen, "decoder.memory.layer_norm.weight" in own)
        if derived:  # replaces the projections of all layers, whichever it was made of
            prefixes = tuple(f"decoder.layers.{l}.self_attn.{kind}_proj" for l in taken for kind in "kv")
            used.update(name for name in source.parameters if name.startswith(prefixes))
    derived.update(rescaled_embeddings(source, found, model))
    return Plan(
        loaded={name: value for name, value in found.items() if name not in derived},
        derived=derived,
        new=[name for name in own if name not in found and name not in derived and MAY_BE_NEW.match(name)],
        unused=[name for name in source.parameters if name not in used],
    )


def name_in_file(name: str, taken: list[int]) -> str:
    """The file's name of one of the model's parameters: the same, but for the numbers of the layers taken."""
    layer = re.match(r"(decoder\.layers\.)(\d+)(\..*)", name)
    return f"{layer[1]}{taken[int(layer[2])]}{layer[3]}" if layer else name


def shared_projections(parameters: dict[str, Tensor], layers: list[int], normalised: bool) -> dict[str, Tensor]:
    """The memory's key and value projections: the mean of these layers' own (v1 §3.2).

    Args:
        parameters: those of the vanilla Transformer.
        layers: their numbers.
        normalised: pre-norm: the memory has a layer norm, which becomes neutral; see ``projection_of_normalised``.

    Returns:
        Values by the names in the new model; empty if a layer lacks its projections (``check_fit`` reports that).
    """
    derived = {}
    for kind in ("k_proj", "v_proj"):
        try:
            pairs = [projection(parameters, l, kind, normalised) for l in layers]
        except KeyError:
            return {}
        for part, values in zip(("weight", "bias"), zip(*pairs)):
            derived[f"decoder.memory.{kind}.{part}"] = torch.stack(values).mean(0)
    if normalised:
        D = derived["decoder.memory.k_proj.weight"].shape[1]
        derived["decoder.memory.layer_norm.weight"] = torch.ones(D)
        derived["decoder.memory.layer_norm.bias"] = torch.zeros(D)
    return derived


def projection(parameters: dict[str, Tensor], l: int, kind: str, normalised: bool) -> tuple[Tensor, Tensor]:
    """Weight and bias of a layer's key or value projection; with pre-norm including the scale and shift of its norm.

    With n the normalised input, γ and β the norm's scale and shift, W and b the projection's weight and bias, pre-norm
    projects to ``W (γ n + β) + b = (W diag(γ)) n + (W β + b)``.

    Args:
        parameters, normalised: see ``shared_projections``.
        l: number of the layer.
        kind: ``k_proj`` or ``v_proj``.

    Raises:
        KeyError: the layer does not have such a parameter.
    """
    layer = f"decoder.layers.{l}"
    weight, bias = (parameters[f"{layer}.self_attn.{kind}.{part}"] for part in ("weight", "bias"))
    if not normalised:
        return weight, bias
    scale, shift = (parameters[f"{layer}.self_attn_layer_norm.{part}"] for part in ("weight", "bias"))
    return weight * scale, bias + weight @ shift


def rescaled_embeddings(source: TrainedModel, found: dict[str, Tensor], model) -> dict[str, Tensor]:
    """The embeddings, if only one of the two models multiplies them by sqrt(D): the factor moves into them.

    fairseq's models multiply them unless trained with ``--no-scale-embedding``; the language models here only tied and
    adaptive ones (``fb_fairseq.modules.words.build_word_layers``).

    Args:
        source: the file.
        found: its parameters that the model has, by the names in the model.
        model: see ``initialise``.

    Returns:
        The embeddings by their name; empty if both models multiply them, or neither. Refused for adaptive embeddings,
        and for those that the output layer or the encoder reads, too.
    """
    decoder = model.decoder
    if source.options.get("relative_positions") is None:  # one of fairseq's own models
        scaled = not source.options.get("no_scale_embedding")
    else:
        scaled = bool(source.options.get("share_decoder_input_output_embed") or source.options.get("adaptive_input"))
    if scaled == (decoder.embed_scale != 1):  # both or neither: as they are
        return {}
    # It can move into the embeddings of a language model that multiplies none: they are not tied, so nothing else reads
    # them. (Adaptive ones have other names.)
    if isinstance(model, FairseqEncoderDecoderModel) or not scaled or EMBEDDINGS not in found:
        theirs, own = ("are", "are not") if scaled else ("are not", "are")
        raise source.error(
            f"its embeddings {theirs} multiplied by sqrt(width), those of the new model {own}; give the same "
            "--no-scale-embedding, --share-decoder-input-output-embed or --adaptive-input"
        )
    return {EMBEDDINGS: found[EMBEDDINGS] * math.sqrt(found[EMBEDDINGS].shape[1])}


# Checks before parameters are copied.


def check_fit(source: TrainedModel, own: dict[str, Tensor], plan: Plan) -> None:
    """Check that the file has all parameters, in the right shapes."""
    values = plan.values
    missing = [name for name in own if name not in values and name not in plan.new]
    misfits = [
        f"{name} {list(value.shape)} (the model needs {list(own[name].shape)})"
        for name, value in values.items()
        if value.shape != own[name].shape
    ]
    problems = []
    if missing:
        problems.append(f"does not have {summary(missing)}")
    if misfits:
        hint = " (was it trained with another dictionary?)" if any("embed_tokens" in text for text in misfits) else ""
        problems.append(f"has {', '.join(misfits[:NAMES_SHOWN])}{hint}")
    if problems:
        raise source.error(f"{'; and '.join(problems)}; give a checkpoint of the same sizes and options")


def check_ties(source: TrainedModel, own: dict[str, Tensor], plan: Plan) -> None:
    """Check that parameters which the model shares are equal."""
    first_names: dict[int, str] = {}
    values = plan.values
    for name, value in values.items():
        other = first_names.setdefault(own[name].data_ptr(), name)
        if other != name and not value.equal(values[other]):
            raise source.error(
                f"its {other} and {name} differ, but the new model shares them; leave out "
                "--share-decoder-input-output-embed or --share-all-embeddings, as in its training"
            )


def check_unused(source: TrainedModel, model, plan: Plan, taken: list[int]) -> None:
    """Check that no parameter of the file is lost."""
    relative = model.decoder.options.relative_positions != "none"

    def may_be_unused(name: str) -> bool:
        layer = re.match(r"decoder\.layers\.(\d+)\.", name)
        return int(layer[1]) not in taken if layer else relative and name.startswith("decoder.embed_positions")

    names = [name for name in plan.unused if not may_be_unused(name)]
    if names:
        raise source.error(f"has {summary(names)}, which the model has not; give the options that it was trained with")


# Reporting.


def summary(names: list[str]) -> str:
    """The modules of parameters, the first few of them: ``decoder.layers.0.fc1, decoder.memory.k_proj, … (2 more)``."""
    modules = list(dict.fromkeys(re.sub(r"\.(weight|bias)$", "", name) for name in names))
    more = len(modules) - NAMES_SHOWN
    return ", ".join(modules[:NAMES_SHOWN]) + (f", … ({more} more)" if more > 0 else "")


def report(path: str, plan: Plan) -> None:
    """Log how many parameters were loaded, derived, …, and the names of all but those that were loaded."""
    named = {"derived": list(plan.derived), "new": plan.new, "left in the file": plan.unused}
    parts = [f"{len(plan.loaded)} loaded"]
    for what, names in named.items():
        parts.append(f"{len(names)} {what}" + (f" ({summary(names)})" if names else ""))
    logger.info(f"parameters from {path}: {', '.join(parts)}")
