"""Options of ``feedback_decoder``: fairseq's ``TransformerConfig``, and its own; from a command line, or from YAML.

fairseq's options are nested in YAML (``decoder: {layers: 2}``) and flat everywhere else (``decoder_layers``). A
checkpoint has them flat, wherever they came from."""

from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import fields
from difflib import get_close_matches
from enum import Enum
from typing import Any

from fairseq.models.transformer import TransformerConfig
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from fb_fairseq.errors import UserError, flag
from fb_fairseq.models.initialisation import InitialisationOptions
from fb_fairseq.models.language_model import AttentionLMConfig
from fb_fairseq.models.layers import described, make_options, with_options
from fb_fairseq.models.pruning import parse_layers
from fb_fairseq.modules.options import FEEDBACK_OPTIONS, TransformerOptions

INITIALISATION_OPTIONS = tuple(f.name for f in fields(InitialisationOptions))
DECODING_OPTIONS = ("memory_storage",)
GROUPS = ("encoder", "decoder", "quant_noise")  # of options that are nested in TransformerConfig
LAYERS_TO_KEEP = ("encoder_layers_to_keep", "decoder_layers_to_keep")

# Options of fairseq's Transformer that would do nothing here, or only in the encoder: the stack reads the parameters of
# fairseq's layers, and calls none of their modules.
UNSUPPORTED = (
    "cross_self_attention",
    "encoder_xformers_att_config",
    "decoder_xformers_att_config",
    "scale_attn",
    "scale_fc",
    "scale_heads",
    "scale_resids",
    "base_layers",
    "base_sublayers",
    "base_shuffle",
    "quant_noise_pq",
    "quant_noise_pq_block_size",
    "quant_noise_scalar",
    "adaptive_input",
    "tie_adaptive_weights",
    "tie_adaptive_proj",  # nor in fairseq's own encoder-decoder
    "merge_src_tgt_embed",  # of fairseq-fixed only
    "char_inputs",
    "export",  # the first is a relic; the second prepares for TorchScript
)


@with_options(described(TransformerOptions, *FEEDBACK_OPTIONS), described(AttentionLMConfig, *DECODING_OPTIONS))
class FeedbackConfig(TransformerConfig):
    """Options of an encoder-decoder with feedback memory."""


@with_options(described(InitialisationOptions, *INITIALISATION_OPTIONS))
class FeedbackDecoderConfig(FeedbackConfig):
    """Options of ``feedback_decoder``, which can start from a vanilla Transformer's parameters."""


def set_defaults(args: Namespace) -> None:
    """Give the options that fairseq's Transformer does not have their defaults, where they are missing.

    Layers to keep become text (``0,2``), as fairseq's models expect them; its command line makes lists."""
    defaults = FeedbackDecoderConfig()
    for name in (*FEEDBACK_OPTIONS, *DECODING_OPTIONS, *INITIALISATION_OPTIONS):
        if getattr(args, name, None) is None:
            setattr(args, name, without_enums(getattr(defaults, name)))
    for name in LAYERS_TO_KEEP:
        kept = getattr(args, name, None)
        if isinstance(kept, (list, tuple)):
            setattr(args, name, ",".join(map(str, kept)))


def without_enums(value: Any) -> Any:
    """The value itself, or an enumeration's text."""
    return str(value) if isinstance(value, Enum) else value


# From YAML.


def resolves_yaml(architecture: Callable[[Any], None]) -> Callable[[Any], None]:
    """Decorator: an architecture, which sets options that are missing from a ``Namespace``, does so in the
    configuration of ``fairseq-hydra-train`` too; its nested options become flat.

    (On that, fairseq's own architectures find None for everything that is missing, and set nothing.)"""

    def resolve(args) -> None:
        if not OmegaConf.is_config(args):
            return architecture(args)
        values = Namespace(**flat_options(args))
        architecture(values)
        for name, value in leaves(OmegaConf.structured(FeedbackDecoderConfig), resolve=False):
            if isinstance(value, str) and value.startswith("${"):
                value = None  # another option's, which the model does without
            vars(values).setdefault(name.replace(".", "_"), value)  # fairseq's trainer reads some of them
        with open_dict(args):
            for group in GROUPS:
                args.pop(group, None)
            for name, value in vars(values).items():
                args[name] = value

    return resolve


def flat_options(cfg: DictConfig) -> dict[str, Any]:
    """The options that a configuration gives, by their names on the command line."""
    schema, found = OmegaConf.structured(FeedbackDecoderConfig), {}
    for path, value in leaves(cfg):
        name = path.replace(".", "_")
        if value is None:
            continue
        if name in found:
            raise UserError(f"model.{path}: also given as model.{name}; leave one of them out")
        if name in LAYERS_TO_KEEP and isinstance(value, str):
            value = parse_layers(flag(name), value)
        found[name] = without_enums(typed(schema, name, path, value))
    return found


def leaves(cfg: DictConfig, resolve: bool = True) -> Iterator[tuple[str, Any]]:
    """The options of a configuration: ``decoder.layers`` or ``decoder_layers``, and their values."""
    for key, value in OmegaConf.to_container(cfg, resolve=resolve, enum_to_str=True).items():
        if key in GROUPS and isinstance(value, dict):
            yield from ((f"{key}.{inner}", inner_value) for inner, inner_value in value.items())
        elif key != "_name":
            yield key, value


def typed(schema: DictConfig, name: str, path: str, value: Any) -> Any:
    """The value as the option's type. ``name``: as on the command line. ``path``: as it is given."""
    group = next((group for group in GROUPS if name.startswith(f"{group}_")), None)
    node, key = (schema, name) if group is None else (schema[group], name[len(group) + 1 :])
    known = [str(option) for option in node if option != "_name"]
    if key not in known:
        close = get_close_matches(key, known, 1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise UserError(f"model.{path}: --arch feedback_decoder has no such option{hint}; correct it, or leave it out")
    try:
        node[key] = value
    except OmegaConfBaseException as error:
        raise UserError(f"model.{path} {value}: {str(error).splitlines()[0]}; correct it") from None
    value = node[key]
    return OmegaConf.to_container(value) if OmegaConf.is_config(value) else value


# To the stack.


def check_options(cfg: FeedbackConfig) -> None:
    """Check that the options have an effect.

    All others act as in fairseq's Transformer, with one exception: ``--min-params-to-wrap`` wraps layers of
    the encoder only."""
    defaults = FeedbackConfig()

    def given(name: str) -> bool:
        default = getattr(defaults, name, False)
        return getattr(cfg, name, default) not in (default, None)

    def refuse(name: str, reason: str) -> None:
        raise UserError(f"{flag(name)}: {reason}")

    for name in UNSUPPORTED:
        if given(name):
            refuse(name, "--arch feedback_decoder does not support it; leave it out")
    if cfg.offload_activations:
        refuse("offload_activations", "the decoder has nothing to offload; give --checkpoint-activations instead")
    if cfg.decoder.input_dim not in (None, cfg.decoder.embed_dim):
        refuse("decoder_input_dim", "embeddings have the width --decoder-embed-dim; leave it out")
    if cfg.share_decoder_input_output_embed and cfg.decoder.output_dim not in (None, cfg.decoder.embed_dim):
        refuse(
            "decoder_output_dim",
            "with --share-decoder-input-output-embed it must be the embeddings' width; leave it out",
        )
    for name in ("adaptive_softmax_dropout", "adaptive_softmax_factor"):
        if given(name) and not cfg.adaptive_softmax_cutoff:
            refuse(name, "has no effect without --adaptive-softmax-cutoff; give that too")


def decoder_options(cfg: FeedbackConfig) -> TransformerOptions:
    """The stack's options, from fairseq's configuration."""
    check_options(cfg)
    values = dict(
        decoder_layers=cfg.decoder.layers,
        decoder_embed_dim=cfg.decoder.embed_dim,
        decoder_ffn_embed_dim=cfg.decoder.ffn_embed_dim,
        decoder_attention_heads=cfg.decoder.attention_heads,
        decoder_normalize_before=cfg.decoder.normalize_before,
        no_decoder_final_norm=True,  # fairseq's decoder has it
        activation_fn=cfg.activation_fn,
        attention_span=cfg.max_target_positions,
        relative_positions="none",
        dropout=cfg.dropout,
        attention_dropout=cfg.attention_dropout,
        activation_dropout=cfg.activation_dropout or cfg.relu_dropout or 0.0,
        decoder_layerdrop=cfg.decoder.layerdrop,
        checkpoint_activations=cfg.checkpoint_activations,
        **{name: getattr(cfg, name) for name in FEEDBACK_OPTIONS},
    )
    return make_options(TransformerOptions, values)
