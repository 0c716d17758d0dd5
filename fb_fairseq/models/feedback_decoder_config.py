"""Options of ``feedback_decoder``: fairseq's ``TransformerConfig``, and its own.

fairseq nests some options in its configuration (``decoder.layers``); command lines and checkpoints have them flat
(``decoder_layers``)."""

from argparse import Namespace
from dataclasses import fields
from enum import Enum
from typing import Any

from fairseq.models.transformer import TransformerConfig

from fb_fairseq.errors import UserError, flag
from fb_fairseq.models.initialisation import InitialisationOptions
from fb_fairseq.models.language_model import AttentionLMConfig
from fb_fairseq.models.layers import described, make_options, with_options
from fb_fairseq.modules.options import FEEDBACK_OPTIONS, TransformerOptions

INITIALISATION_OPTIONS = tuple(f.name for f in fields(InitialisationOptions))
DECODING_OPTIONS = ("memory_storage",)
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
