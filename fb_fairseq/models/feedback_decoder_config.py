"""Options of ``feedback_decoder``: fairseq's ``TransformerConfig``, and its own.

fairseq nests some options in its configuration (``decoder.layers``); command lines and checkpoints have them flat
(``decoder_layers``).
"""

from argparse import Namespace
from dataclasses import fields

from fairseq.models.transformer import TransformerConfig

from fb_fairseq.errors import UserError, flag
from fb_fairseq.models.initialisation import InitialisationOptions
from fb_fairseq.models.language_model import AttentionLMConfig
from fb_fairseq.models.option_fields import described, make_options, with_options
from fb_fairseq.modules.options import FEEDBACK_OPTIONS, TransformerOptions

LAYERS_TO_KEEP = ("encoder_layers_to_keep", "decoder_layers_to_keep")

# Options of fairseq's Transformer that would have no effect here, or only in the encoder, because the stack reads the
# parameters of fairseq's decoder layers, but never calls the layers. All other options work as in fairseq, with one
# exception: --min-params-to-wrap wraps layers of the encoder only.
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
    "offload_activations",
    "char_inputs",  # fairseq does not use it either
    "export",  # for TorchScript
)


@with_options(
    described(TransformerOptions, *FEEDBACK_OPTIONS),
    described(AttentionLMConfig, "memory_storage"),
    described(InitialisationOptions),
)
class FeedbackDecoderConfig(TransformerConfig):
    """Options of ``feedback_decoder``, which can start from a vanilla Transformer's parameters."""


def set_defaults(args: Namespace) -> None:
    """Give the options that fairseq's Transformer does not have their defaults, where they are missing.

    Layers to keep become text (``0,2``), as fairseq's models expect them; its command line makes lists.
    """
    defaults = FeedbackDecoderConfig()
    for name in (*FEEDBACK_OPTIONS, "memory_storage", *(f.name for f in fields(InitialisationOptions))):
        if getattr(args, name, None) is None:
            setattr(args, name, getattr(defaults, name))
    for name in LAYERS_TO_KEEP:
        kept = getattr(args, name, None)
        if isinstance(kept, (list, tuple)):
            setattr(args, name, ",".join(map(str, kept)))


def check_options(cfg: FeedbackDecoderConfig) -> None:
    """Refuse the options of ``UNSUPPORTED``."""
    defaults = FeedbackDecoderConfig()
    for name in UNSUPPORTED:
        default = getattr(defaults, name, False)
        if getattr(cfg, name, default) not in (default, None):
            raise UserError(f"{flag(name)}: --arch feedback_decoder does not support it; leave it out")


def decoder_options(cfg: FeedbackDecoderConfig) -> TransformerOptions:
    """The stack's options, from fairseq's configuration."""
    check_options(cfg)
    return make_options(
        TransformerOptions,
        cfg,
        no_decoder_final_norm=True,  # it belongs to fairseq's decoder, not to the stack
        attention_span=cfg.max_target_positions,
        relative_positions="none",
        activation_dropout=cfg.activation_dropout or cfg.relu_dropout or 0.0,
    )
