"""The named architectures of the language models: the papers' hyperparameters.

``relative_transformer_lm`` and ``feedback_transformer_lm`` have the same sizes (Feedback Transformer, v3 Table 9); each
layer has its own key and value projections, except in those whose name has ``_shared``. The papers' values for
training (learning rate, BPTT length, batch size, clipping) are in the recipes of ``examples/``.

``tests/models/test_presets.py`` compares them with ``fb_fairseq/papers/values/hyperparameters.json``, and checks the
parameter counts in the comments.
"""

from typing import Any

from fairseq.models import register_model_architecture
from omegaconf import OmegaConf

from fb_fairseq.errors import UserError
from fb_fairseq.models.language_models import (  # noqa: F401  registers the models; they were defined here before
    AllAttentionLanguageModel,
    FeedbackTransformerLanguageModel,
    RelativeTransformerLanguageModel,
    StreamingLSTMLanguageModel,
)

# Embeddings and output layer for WikiText-103. The cut-offs are the published code's; with them the parameter counts
# are the papers'.
ADAPTIVE_WORDS = dict(
    adaptive_input=True,
    adaptive_input_cutoff="20000,40000,200000",
    adaptive_softmax_cutoff="20000,40000,200000",
    tie_adaptive_weights=True,
    tie_adaptive_proj=True,
)
# All-attention §5.1, read literally: "3 clusters of size 20k, 40k and 200k", of widths d, d/4 and d/16.
THREE_CLUSTERS = dict(adaptive_input_cutoff="20000,60000", adaptive_softmax_cutoff="20000,60000")
# v3 §7.6: "the best performance is achieved by extending the attention span to 2048 with adaptive span loss 0.00001"
EXTENDED_SPAN = dict(attention_span=2048, adaptive_span=True, adaptive_span_loss=1e-5)


def transformer(
    *, layers: int, width: int, ffn: int, heads: int, span: int, dropout: float, pre_norm: bool = True, **more: Any
) -> dict:
    """Options of one Transformer; those of v3 Table 9 are pre-norm.

    Args:
        layers, width, ffn, heads, span: its sizes.
        dropout: rate for the attention weights, and after the activation of the feed-forward sublayer.
        pre_norm: whether norms are before the sublayers.
        more: further options.
    """
    return dict(
        decoder_normalize_before=pre_norm,
        decoder_layers=layers,
        decoder_embed_dim=width,
        decoder_ffn_embed_dim=ffn,
        decoder_attention_heads=heads,
        attention_span=span,
        attention_dropout=dropout,
        activation_dropout=dropout,
        **more,
    )


def word_dropout(p: float) -> dict:
    """Dropout of the embeddings and before the output layer, on WikiText-103."""
    return dict(embedding_dropout=p, output_dropout=p)


def all_attention(*, layers: int, vectors: int, span: int, span_loss: float, dropout: float, **more: Any) -> dict:
    """Options of one model in All-attention §5.1. All have width 512, 8 heads and adaptive spans.

    Args:
        vectors: persistent vectors per head, N.
        span_loss: weight of the adaptive spans' penalty.
        dropout: rate for the attention weights.
        more: further options.
    """
    return dict(
        decoder_embed_dim=512,
        decoder_attention_heads=8,
        adaptive_span=True,
        decoder_layers=layers,
        persistent_memory_size=vectors,
        attention_span=span,
        adaptive_span_loss=span_loss,
        attention_dropout=dropout,
        **more,
    )


# 77M parameters on enwik8.
BYTES = transformer(
    layers=12,
    width=512,
    ffn=4096,
    heads=8,
    decoder_head_dim=128,
    span=8192,
    dropout=0.5,
    adaptive_span=True,
    adaptive_span_loss=5e-7,
)


# 44M parameters.
WIKITEXT103_SMALL = transformer(
    layers=4,
    width=512,
    ffn=4096,
    heads=8,
    decoder_head_dim=128,
    span=512,
    dropout=0.1,
    **word_dropout(0.1),
    **ADAPTIVE_WORDS,
)


# 139M parameters; 124M with shared projections, for which v3 Table 3 has 126M.
WIKITEXT103_LARGE = transformer(
    layers=8, width=1024, ffn=4096, heads=8, span=512, dropout=0.3, **word_dropout(0.2), **ADAPTIVE_WORDS
)


TRANSFORMERS = {
    # 3.2M and 10.7M parameters.
    "random_walk": transformer(layers=4, width=256, ffn=1024, heads=4, span=100, dropout=0.2),
    "char_ptb": transformer(layers=6, width=384, ffn=1536, heads=4, span=512, dropout=0.5),
    "enwik8": BYTES,
    "text8": BYTES,
    "wikitext103_small": WIKITEXT103_SMALL,
    "wikitext103_large": WIKITEXT103_LARGE,
    "wikitext103_large_span2048": {**WIKITEXT103_LARGE, **EXTENDED_SPAN},
}


# The baselines of All-attention Tables 1 and 2, "Transformer + adaptive span": post-norm, 39M and 209M parameters.
# Their sizes, span loss and dropout are those of the published code (Sukhbaatar et al. 2019, arXiv 1905.07799).
CHAR_TRANSFORMERS = {
    name: transformer(
        layers=layers,
        width=width,
        ffn=ffn,
        heads=8,
        span=8192,
        dropout=dropout,
        pre_norm=False,
        adaptive_span=True,
        adaptive_span_loss=5e-7,
    )
    for name, layers, width, ffn, dropout in (("char_small", 12, 512, 2048, 0.3), ("char_large", 24, 768, 4096, 0.4))
}


ALL_ATTENTION_WORDS = all_attention(
    layers=36, vectors=2048, span=2048, span_loss=5e-7, dropout=0.3, **word_dropout(0.1), **ADAPTIVE_WORDS
)


ALL_ATTENTION = {
    # enwik8 and text8: 39M and 114M parameters.
    "char_small": all_attention(layers=18, vectors=1024, span=8192, span_loss=1e-7, dropout=0.3),
    "char_large": all_attention(layers=36, vectors=2048, span=8192, span_loss=1e-7, dropout=0.4),
    # 132M and 136M parameters.
    "wikitext103": ALL_ATTENTION_WORDS,
    "wikitext103_3clusters": {**ALL_ATTENTION_WORDS, **THREE_CLUSTERS},
}


def register(model: str, name: str, values: dict) -> None:
    """Register ``--arch <model>_<name>``, with these values for options that are not given."""
    arch = f"{model}_{name}"

    @register_model_architecture(model, arch)
    def architecture(args):
        if OmegaConf.is_config(args):
            if args.get("resolved_architecture") == arch:
                return  # by the command line, or before the checkpoint was made
            # fairseq-hydra-train would silently build the model with the values of its dataclass.
            raise UserError(
                f"model._name={arch}: fairseq-hydra-train cannot resolve named architectures; give model._name={model} "
                f"and its values: {', '.join(f'{key}={value}' for key, value in values.items())}"
            )
        for key, value in values.items():
            if not hasattr(args, key):
                setattr(args, key, value)
        args.resolved_architecture = arch


def register_all() -> None:
    """Register the architectures of the tables."""
    for name, values in TRANSFORMERS.items():
        register("relative_transformer_lm", name, values)
        register("feedback_transformer_lm", name, {**values, "memory_projections": "per-layer"})
        if name.startswith("wikitext103_large"):
            shared = name.replace("large", "large_shared")
            register("feedback_transformer_lm", shared, {**values, "memory_projections": "shared"})
    for name, values in CHAR_TRANSFORMERS.items():
        register("relative_transformer_lm", name, values)
    for name, values in ALL_ATTENTION.items():
        register("all_attention_lm", name, values)


register_all()
