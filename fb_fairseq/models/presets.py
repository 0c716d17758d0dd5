"""Named architectures: the papers' hyperparameters of the models (Feedback Transformer v3 Table 9, All-attention §5.1;
parameter counts as the papers state).

The Feedback Transformer's baseline has the same sizes. Projections are one a layer, but for WikiText-103 large shared.
What the tables say of training (learning rate, BPTT length, batch size, clipping) is in the recipes of ``examples/``.
"""

from fairseq.models import register_model_architecture
from omegaconf import OmegaConf

from fb_fairseq.errors import UserError
from fb_fairseq.models import all_attention_lm, feedback_transformer_lm, relative_transformer_lm  # noqa: F401  first

PRE_NORM = dict(decoder_normalize_before=True)


def same_dropout(p: float) -> dict:
    """The tables' dropout rate: of attention weights and after the activation."""
    return dict(attention_dropout=p, activation_dropout=p)


RANDOM_WALK = dict(
    **PRE_NORM,
    decoder_layers=4,
    decoder_embed_dim=256,
    decoder_ffn_embed_dim=1024,
    decoder_attention_heads=4,
    attention_span=100,
    **same_dropout(0.2),
)
CHAR_PTB = dict(
    **PRE_NORM,
    decoder_layers=6,
    decoder_embed_dim=384,
    decoder_ffn_embed_dim=1536,
    decoder_attention_heads=4,
    attention_span=512,
    **same_dropout(0.5),
)
ENWIK8 = dict(
    **PRE_NORM,
    decoder_layers=12,
    decoder_embed_dim=512,
    decoder_ffn_embed_dim=4096,
    decoder_attention_heads=8,
    decoder_head_dim=128,
    attention_span=8192,
    adaptive_span=True,
    adaptive_span_loss=5e-7,
    **same_dropout(0.5),
)
# The cut-offs of the published code, which give the papers' parameter counts.
WORDS = dict(
    adaptive_input=True,
    adaptive_input_cutoff="20000,40000,200000",
    adaptive_softmax_cutoff="20000,40000,200000",
    tie_adaptive_weights=True,
    tie_adaptive_proj=True,
)
WIKITEXT103_SMALL = dict(
    **PRE_NORM,
    **WORDS,
    decoder_layers=4,
    decoder_embed_dim=512,
    decoder_ffn_embed_dim=4096,
    decoder_attention_heads=8,
    decoder_head_dim=128,
    attention_span=512,
    embedding_dropout=0.1,
    output_dropout=0.1,
    **same_dropout(0.1),
)
WIKITEXT103_LARGE = dict(
    **PRE_NORM,
    **WORDS,
    decoder_layers=8,
    decoder_embed_dim=1024,
    decoder_ffn_embed_dim=4096,
    decoder_attention_heads=8,
    attention_span=512,
    embedding_dropout=0.2,
    output_dropout=0.2,
    **same_dropout(0.3),
)
# "The adaptive span has the same hyperparameters as Sukhbaatar et al. [39] with a maximum span of 8192, except the
# loss"
ALL_ATTENTION = dict(decoder_embed_dim=512, decoder_attention_heads=8, adaptive_span=True)
ALL_ATTENTION_PRESETS = {
    "char_small": dict(
        **ALL_ATTENTION,
        decoder_layers=18,
        persistent_memory_size=1024,
        attention_dropout=0.3,
        attention_span=8192,
        adaptive_span_loss=1e-7,
    ),
    "char_large": dict(
        **ALL_ATTENTION,
        decoder_layers=36,
        persistent_memory_size=2048,
        attention_dropout=0.4,
        attention_span=8192,
        adaptive_span_loss=1e-7,
    ),
    "wikitext103": dict(
        **ALL_ATTENTION,
        **WORDS,
        decoder_layers=36,
        persistent_memory_size=2048,
        attention_dropout=0.3,
        embedding_dropout=0.1,
        output_dropout=0.1,
        attention_span=2048,
        adaptive_span_loss=5e-7,
    ),
}
PRESETS = {
    "char_ptb": CHAR_PTB,
    "enwik8": ENWIK8,
    "text8": ENWIK8,
    "wikitext103_small": WIKITEXT103_SMALL,
    "wikitext103_large": WIKITEXT103_LARGE,
}


def register(model: str, name: str, values: dict) -> None:
    """Register ``--arch <model>_<name>``: these values where an option is not given."""
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


for _name, _values in PRESETS.items():
    register("relative_transformer_lm", _name, _values)
    register("feedback_transformer_lm", _name, {**_values, "memory_projections": "per-layer"})
for _name, _values in ALL_ATTENTION_PRESETS.items():
    register("all_attention_lm", _name, _values)
register("feedback_transformer_lm", "random_walk", {**RANDOM_WALK, "memory_projections": "per-layer"})
register("relative_transformer_lm", "random_walk", RANDOM_WALK)
register("feedback_transformer_lm", "wikitext103_large_shared", {**WIKITEXT103_LARGE, "memory_projections": "shared"})
