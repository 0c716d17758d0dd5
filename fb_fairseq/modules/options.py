"""The sizes and switches of a stack of layers, checked when they are put together."""

from dataclasses import dataclass

from fb_fairseq.ops.feedback.select import KERNELS, STEP_LOOPS
from fb_fairseq.ops.layers import ACTIVATIONS

COMPOSITIONS = "weighted, average, layer:<l>, same-and-lower, previous"
PERSISTENT_MEMORY_VARIANTS = ("all-attn", "attn-split", "head-split", "single-head", "ff-attn")


@dataclass(frozen=True)
class TransformerOptions:
    """Options of ``FeedbackTransformer``, ``RelativeTransformer`` and ``AllAttention``; the names are the command line's.

    Raises:
        ValueError: an option is out of range; the message names it.
    """

    decoder_layers: int = 6
    decoder_embed_dim: int = 512
    decoder_ffn_embed_dim: int = 2048
    decoder_attention_heads: int = 8
    decoder_head_dim: int = 0  # 0: embed_dim / heads
    decoder_normalize_before: bool = False
    no_decoder_final_norm: bool = False
    activation_fn: str = "relu"
    attention_span: int = 512
    relative_positions: str = "key"
    dropout: float = 0.0
    embedding_dropout: float = 0.0
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    output_dropout: float = 0.0
    decoder_layerdrop: float = 0.0
    memory_composition: str = "weighted"
    memory_projections: str = "shared"
    step_loop: str = "auto"
    step_loop_kernel: str = "torch"
    step_loop_recompute: bool = False
    persistent_memory_size: int = 0
    persistent_memory_variant: str = "all-attn"
    checkpoint_activations: bool = False
    adaptive_span: bool = False
    adaptive_span_loss: float = 0.0
    adaptive_span_ramp: int = 32
    adaptive_span_init: float = 0.0

    def __post_init__(self):
        def check(good, name, problem):
            if not good:
                value = getattr(self, name)
                raise ValueError(f"--{name.replace('_', '-')} {value}: {problem}")

        for name in ("decoder_layers", "decoder_embed_dim", "decoder_ffn_embed_dim", "decoder_attention_heads"):
            check(getattr(self, name) >= 1, name, "give 1 or more")
        check(self.decoder_head_dim >= 0, "decoder_head_dim", "give a width, or 0 for embed_dim / heads")
        check(
            self.decoder_head_dim or self.decoder_embed_dim % self.decoder_attention_heads == 0,
            "decoder_attention_heads",
            f"does not divide --decoder-embed-dim {self.decoder_embed_dim}; "
            "give a number that does, or the width of a head with --decoder-head-dim",
        )
        check(self.attention_span >= 1, "attention_span", "a step needs at least 1 step before it to attend to")
        check(self.activation_fn in ACTIVATIONS, "activation_fn", f"unknown, choose of {', '.join(ACTIVATIONS)}")
        choices = ("key", "key-value", "none")
        check(self.relative_positions in choices, "relative_positions", f"unknown, choose of {', '.join(choices)}")
        for name in [name for name in vars(self) if name.endswith(("dropout", "layerdrop"))]:
            check(0 <= getattr(self, name) < 1, name, "give a probability below 1")
        choices = ("shared", "per-layer")
        check(self.memory_projections in choices, "memory_projections", f"unknown, choose of {', '.join(choices)}")
        check(self.step_loop in STEP_LOOPS, "step_loop", f"unknown, choose of {', '.join(STEP_LOOPS)}")
        check(self.step_loop_kernel in KERNELS, "step_loop_kernel", f"unknown, choose of {', '.join(KERNELS)}")
        self._check_composition(check)
        self._check_persistent_memory(check)
        check(self.adaptive_span_ramp > 0, "adaptive_span_ramp", "give the steps over which a span fades out")
        check(0 <= self.adaptive_span_init <= 1, "adaptive_span_init", "give a fraction of --attention-span")
        check(self.adaptive_span_loss >= 0, "adaptive_span_loss", "give 0 or more")
        check(
            self.adaptive_span or self.adaptive_span_loss == 0,
            "adaptive_span_loss",
            "has no effect without --adaptive-span; give that too",
        )
        check(
            self.adaptive_span or self.adaptive_span_init == 0,
            "adaptive_span_init",
            "has no effect without --adaptive-span; give that too",
        )

    def _check_composition(self, check):
        kind, _, layer = self.memory_composition.partition(":")
        check(
            kind in ("weighted", "average", "same-and-lower", "previous") and not layer or kind == "layer",
            "memory_composition",
            f"unknown, choose of {COMPOSITIONS}",
        )
        check(
            kind != "layer" or layer.isdigit() and int(layer) <= self.decoder_layers,
            "memory_composition",
            f"give layer:0 (the embedding) to layer:{self.decoder_layers} (the top layer)",
        )

    def _check_persistent_memory(self, check):
        check(self.persistent_memory_size >= 0, "persistent_memory_size", "give a number of vectors, or 0 for none")
        variant, choices = "persistent_memory_variant", PERSISTENT_MEMORY_VARIANTS
        check(self.persistent_memory_variant in choices, variant, f"unknown, choose of {', '.join(choices)}")
        check(
            self.persistent_memory_size or self.persistent_memory_variant == "all-attn",
            variant,
            "has no effect without persistent vectors; give --persistent-memory-size, or leave it out",
        )
        check(
            self.persistent_memory_variant != "head-split" or self.decoder_attention_heads % 2 == 0,
            variant,
            f"halves the heads; give an even number of them, not --decoder-attention-heads {self.decoder_attention_heads}",
        )

    @property
    def context_heads(self) -> int:
        """How many heads attend to the context: all, or half of them with ``head-split``."""
        return self.decoder_attention_heads // (2 if self.persistent_memory_variant == "head-split" else 1)

    @property
    def head_dim(self) -> int:
        return self.decoder_head_dim or self.decoder_embed_dim // self.decoder_attention_heads
