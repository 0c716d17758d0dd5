"""Options of the stacks and of the encoder. Each is described here only: the configurations of models take help and
choices from here.
"""

import os
from dataclasses import dataclass, fields

from fb_fairseq.command_line import option
from fb_fairseq.errors import UserError, flag
from fb_fairseq.modules.memory import COMPOSITIONS, composition, written
from fb_fairseq.ops.feedback.loops import AUTO, CHOICES, OLD_NAMES
from fb_fairseq.ops.layers import ACTIVATIONS

STEP_LOOP_VARIABLE = "FB_FAIRSEQ_STEP_LOOP"
# Of the options of stacks, those of a feedback memory.
FEEDBACK_OPTIONS = ("memory_composition", "memory_projections", "step_loop")
PERSISTENT_MEMORY_VARIANTS = ("all-attn", "attn-split", "head-split", "single-head", "ff-attn")


class CheckedOptions:
    """Base of option dataclasses: general checks, and errors that name the option."""

    def check(self, good: bool, name: str, problem: str) -> None:
        """Check a condition on an option."""
        if not good:
            raise UserError(f"{flag(name)} {getattr(self, name)}: {problem}")

    def check_fields(self) -> None:
        """Put present names in the place of former ones; check choices, and that dropout rates are probabilities."""
        for f in fields(self):
            former = f.metadata.get("former")
            if former and getattr(self, f.name) in former:
                object.__setattr__(self, f.name, former[getattr(self, f.name)])
            choices = f.metadata.get("choices")
            if choices is not None:
                self.check(getattr(self, f.name) in choices, f.name, f"unknown; choose from {', '.join(choices)}")
            if f.name.endswith(("dropout", "layerdrop")):
                self.check(0 <= getattr(self, f.name) < 1, f.name, "must be a probability below 1")

    def check_positive(self, *names: str) -> None:
        """Check that options are at least 1."""
        for name in names:
            self.check(getattr(self, name) >= 1, name, "must be 1 or more")


@dataclass(frozen=True)
class TransformerOptions(CheckedOptions):
    """Options of ``FeedbackTransformer``, ``RelativeTransformer`` and ``AllAttention``, as on the command line."""

    decoder_layers: int = option(6, "number of layers")
    decoder_embed_dim: int = option(512, "model width")
    decoder_ffn_embed_dim: int = option(2048, "width of the feed-forward sublayer")
    decoder_attention_heads: int = option(8, "number of attention heads")
    decoder_head_dim: int = option(0, "width of a head; 0: model width / heads")
    decoder_normalize_before: bool = option(False, "apply layer norm before each sublayer (pre-norm)")
    no_decoder_final_norm: bool = option(False, "no layer norm after the last layer (pre-norm only)")
    activation_fn: str = option("relu", "activation function of the feed-forward sublayer", ACTIVATIONS)
    attention_span: int = option(512, "how many steps back attention reaches, across blocks")
    relative_positions: str = option(
        "key",
        "learned relative positions for keys, or for keys and values; none: fairseq's absolute positions",
        ("key", "key-value", "none"),
    )
    dropout: float = option(0.0, "dropout of each sublayer's output, before it is added to its input")
    embedding_dropout: float = option(0.0, "dropout of the embedding layer's output")
    attention_dropout: float = option(0.0, "dropout of attention weights")
    activation_dropout: float = option(0.0, "dropout after the activation in the feed-forward sublayer")
    output_dropout: float = option(0.0, "dropout of the last sublayer's output")
    decoder_layerdrop: float = option(
        0.0, "LayerDrop probability, drawn once per block; blocks without some layers run in the reference loop"
    )
    memory_composition: str = option(
        "weighted",
        "what the memory is made of: "
        + "; ".join(f"{written(name)}: {kind.summary}" for name, kind in COMPOSITIONS.items()),
    )
    memory_projections: str = option(
        "shared",
        "one key and value projection for all layers (v3 of the paper), or one per layer (v1)",
        ("shared", "per-layer"),
    )
    step_loop: str = option(
        AUTO,
        "; ".join(f"{name}: {summary}, {runs}" for name, (summary, runs) in CHOICES.items())
        + f" (the environment variable {STEP_LOOP_VARIABLE} replaces auto: see docs/choosing-options.md)",
        CHOICES,
        OLD_NAMES,
    )
    persistent_memory_size: int = option(0, "number of persistent key and value vectors of each head and layer")
    persistent_memory_variant: str = option(
        "all-attn",
        "all-attn: one softmax over context and persistent vectors; attn-split: one softmax each; head-split: half of "
        "the heads each; single-head: as attn-split, with one set of vectors for all heads; ff-attn: as single-head, "
        "in a sublayer of its own",
        PERSISTENT_MEMORY_VARIANTS,
    )
    checkpoint_activations: bool = option(False, "recompute activations in the backward pass: less memory, more time")
    adaptive_span: bool = option(False, "let each head learn how far back it reaches, up to --attention-span")
    adaptive_span_loss: float = option(
        0.0, "weight of the span penalty: nats per token for each step of a layer's mean span"
    )
    adaptive_span_ramp: int = option(32, "steps over which a head's attention fades out at the end of its span")
    adaptive_span_init: float = option(0.0, "initial spans, as a fraction of --attention-span")

    def __post_init__(self):
        self.check_fields()
        self.check_positive(
            "decoder_layers",
            "decoder_embed_dim",
            "decoder_ffn_embed_dim",
            "decoder_attention_heads",
            "attention_span",
            "adaptive_span_ramp",
        )
        self.check(self.decoder_head_dim >= 0, "decoder_head_dim", "must be a width, or 0 for model width / heads")
        self.check(
            self.decoder_head_dim or self.decoder_embed_dim % self.decoder_attention_heads == 0,
            "decoder_attention_heads",
            f"does not divide --decoder-embed-dim {self.decoder_embed_dim}; "
            "give a number that does, or the width of a head with --decoder-head-dim",
        )
        self._check_composition()
        self._check_persistent_memory()
        self._check_spans()

    def _check_composition(self):
        try:
            composition(self.memory_composition, self.decoder_layers)
        except ValueError as error:
            self.check(False, "memory_composition", str(error))

    def _check_persistent_memory(self):
        heads = self.decoder_attention_heads
        self.check(
            self.persistent_memory_size >= 0, "persistent_memory_size", "must be a number of vectors, or 0 for none"
        )
        self.check(
            self.persistent_memory_size or self.persistent_memory_variant == "all-attn",
            "persistent_memory_variant",
            "has no effect without persistent vectors; give --persistent-memory-size, or leave it out",
        )
        self.check(
            self.persistent_memory_variant != "head-split" or heads % 2 == 0,
            "persistent_memory_variant",
            f"halves the heads; give an even number of them, not --decoder-attention-heads {heads}",
        )

    def _check_spans(self):
        self.check(0 <= self.adaptive_span_init <= 1, "adaptive_span_init", "must be a fraction of --attention-span")
        self.check(self.adaptive_span_loss >= 0, "adaptive_span_loss", "must be 0 or more")
        for name in ("adaptive_span_loss", "adaptive_span_init"):
            self.check(
                self.adaptive_span or getattr(self, name) == 0,
                name,
                "has no effect without --adaptive-span; give that too",
            )

    def loop_choice(self) -> str:
        """The step loop. The environment variable ``FB_FAIRSEQ_STEP_LOOP`` takes the place of ``auto``."""
        given = os.environ.get(STEP_LOOP_VARIABLE, "")
        if self.step_loop != AUTO or not given:
            return self.step_loop
        given = OLD_NAMES.get(given, given)
        if given not in CHOICES:
            raise UserError(f"{STEP_LOOP_VARIABLE}={given}: unknown; give {', '.join(CHOICES)}")
        return given

    @property
    def context_heads(self) -> int:
        """Number of heads that attend to the context: all, or half of them with ``head-split``."""
        return self.decoder_attention_heads // (2 if self.persistent_memory_variant == "head-split" else 1)

    @property
    def head_dim(self) -> int:
        """Width of a head, E."""
        return self.decoder_head_dim or self.decoder_embed_dim // self.decoder_attention_heads


@dataclass(frozen=True)
class EncoderOptions(CheckedOptions):
    """Options of ``TransformerEncoder``, as on the command line of ``feedback_decoder``."""

    encoder_layers: int = option(6, "number of the encoder's layers")
    encoder_embed_dim: int = option(512, "the encoder's width")
    encoder_ffn_embed_dim: int = option(2048, "width of its feed-forward sublayers")
    encoder_attention_heads: int = option(8, "number of its attention heads")
    encoder_normalize_before: bool = option(False, "apply layer norm before each of its sublayers (pre-norm)")
    encoder_learned_pos: bool = option(False, "learned positions in the encoder, not sinusoidal ones")
    encoder_layerdrop: float = option(0.0, "the encoder's LayerDrop probability")
    max_source_positions: int = option(1024, "longest source, in tokens")
    activation_fn: str = option("relu", "activation function of the feed-forward sublayer", ACTIVATIONS)
    dropout: float = option(0.0, "dropout of embeddings, and of each sublayer's output")
    attention_dropout: float = option(0.0, "dropout of attention weights")
    activation_dropout: float = option(0.0, "dropout after the activation in the feed-forward sublayer")
    no_token_positional_embeddings: bool = option(False, "no positions are added to embeddings")
    no_scale_embedding: bool = option(False, "do not multiply embeddings by the square root of the width")
    layernorm_embedding: bool = option(False, "apply layer norm to embeddings")
    checkpoint_activations: bool = option(False, "recompute the activations of layers in the backward pass")

    def __post_init__(self):
        self.check_fields()
        self.check_positive(
            "encoder_layers",
            "encoder_embed_dim",
            "encoder_ffn_embed_dim",
            "encoder_attention_heads",
            "max_source_positions",
        )
        self.check(
            self.encoder_embed_dim % self.encoder_attention_heads == 0,
            "encoder_attention_heads",
            f"does not divide --encoder-embed-dim {self.encoder_embed_dim}; give a number that does",
        )
