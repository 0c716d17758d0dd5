"""Small models of each kind."""

import torch

import fb_fairseq.transformers as ft  # before anything of transformers, as users do
from fb_fairseq.transformers.modeling import MODELS

V, SPAN = 30, 7
SHAPE = dict(decoder_layers=2, decoder_embed_dim=16, decoder_attention_heads=2, decoder_ffn_embed_dim=24)
ADAPTIVE = dict(adaptive_input=True, adaptive_input_cutoff="8,16", adaptive_softmax_cutoff="8,16")


# The kinds of models, and options that change how they decode.
KINDS = {
    "feedback": ("feedback_transformer_lm", {}),
    "feedback-per-layer-spans": (
        "feedback_transformer_lm",
        dict(memory_projections="per-layer", adaptive_span=True, adaptive_span_init=0.5, adaptive_span_ramp=2),
    ),
    "feedback-vectors": ("feedback_transformer_lm", dict(memory_storage="vectors", decoder_normalize_before=True)),
    "transformer": ("relative_transformer_lm", {}),
    "transformer-absolute": ("relative_transformer_lm", dict(relative_positions="none")),
    "all-attention": ("all_attention_lm", dict(persistent_memory_size=5)),
    "tied": ("feedback_transformer_lm", dict(share_decoder_input_output_embed=True)),
    "adaptive": ("feedback_transformer_lm", dict(**ADAPTIVE, adaptive_softmax_bias=True)),
    "adaptive-tied": ("feedback_transformer_lm", dict(**ADAPTIVE, tie_adaptive_weights=True, tie_adaptive_proj=True)),
    "lstm": ("streaming_lstm_lm", {}),
}


# The kinds of translation models.
SIDE = dict(layers=2, embed_dim=16, ffn_embed_dim=24, attention_heads=2)
TRANSLATOR_SHAPE = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in SIDE.items()}
TRANSLATOR_SHAPE.update(vocab_size=30, source_vocab_size=25)
TRANSLATORS = {
    "post-norm": dict(),
    "pre-norm": dict(decoder_normalize_before=True, encoder_normalize_before=True, memory_projections="per-layer"),
    "learned": dict(decoder_learned_pos=True, encoder_learned_pos=True, max_target_positions=40),
    "shared": dict(share_all_embeddings=True, source_vocab_size=30),
    "adaptive": dict(adaptive_softmax_cutoff="8,16", layernorm_embedding=True),
}


def build(kind, **more):
    """A model in evaluation. ``kind``: one of ``KINDS``; ``more``: further options of its configuration."""
    torch.manual_seed(1)
    name, options = KINDS[kind]
    if name == "streaming_lstm_lm":
        shape = {name: SHAPE[name] for name in ("decoder_layers", "decoder_embed_dim")}
    else:
        shape = {**SHAPE, "attention_span": SPAN}
    return MODELS[name](ft.CONFIGS[name](vocab_size=V, **shape, **options, **more)).eval()


def translator(kind, **more):
    torch.manual_seed(1)
    options = {**TRANSLATOR_SHAPE, **TRANSLATORS[kind], **more}
    return ft.FeedbackDecoderForConditionalGeneration(ft.FeedbackDecoderConfig(**options)).eval()


def tagger(**more):
    """A model that predicts a label of each token."""
    torch.manual_seed(1)
    config = ft.FeedbackTransformerConfig(vocab_size=V, **SHAPE, attention_span=SPAN, labels=True, **more)
    return ft.FeedbackTransformerForTokenClassification(config).eval()
