"""enwik8 as bytes and text8 as letters: Feedback Transformer v3 Table 9 and §7.6, All-attention §5.1."""

from dataclasses import replace

from fb_fairseq.papers.experiments import char_ptb, settings, sizes
from fb_fairseq.papers.experiments.settings import LanguageModeling, Options, Scale, Training

FEEDBACK = Training(
    # v3 Table 9 and §7.6, enwik8
    updates=100_000,
    finetune_updates=10_000,
    lr=0.0015,
    streams=1024,
    tokens_per_sample=128,
    validate_every=1000,
    options=dict(clip_norm=0.1),
    warmup=dict(lr_scheduler="fixed", warmup_updates=8000),
    # "the BPTT length is decreased to 64 for the first half of the training"
    bptt_warmup=dict(bptt_warmup_tokens=64, bptt_warmup_iterations=lambda updates: updates // 2),
)
ALL_ATTENTION = Training(
    # All-attention §5.1; the published code evaluates with 8 streams
    # The paper gives no number of updates: it fine-tunes "when the loss on validation stops decreasing".
    updates=600_000,
    finetune_updates=25_000,
    lr=0.07,
    streams=64,
    tokens_per_sample=512,
    validate_every=2000,
    optimizer="clipped_adagrad",
    options=dict(adagrad_clip=0.03, clip_norm=0, patience=10),
    warmup=dict(lr_scheduler="fixed", warmup_updates=32_000),
)
SMALL = replace(char_ptb.SMALL, updates=1500, finetune_updates=150)  # minutes to an hour on a CPU
ENWIK8_MD5 = "a1fa5ffddb56f4953e226637dabbb36a"
TEXT8_MD5 = "3bea1919949baf155f99411df5fada7e"


def full_training(arch: str) -> Training:
    """All-attention and its baselines, ``relative_transformer_lm_char_small`` and ``_large``, have their own."""
    own = arch.startswith(("all_attention_lm_", "relative_transformer_lm_char_"))
    return ALL_ATTENTION if own else FEEDBACK


def small_shape(arch: str, layers: int) -> Options:
    """The sizes of small models."""
    if arch == "streaming_lstm_lm":
        return sizes.equal_lstm(layers, parameters=12 * 128**2 * layers, width=128, words=2 * 256)
    return {**sizes.small_sizes(arch, layers, width=128), **sizes.equal_parameters(arch, ffn=512)}


ENWIK8 = LanguageModeling(
    name="enwik8",
    summary="enwik8 as bytes (v3 Table 9; All-attention Table 1)",
    corpus="enwik8 or enwik8.zip; with --small any text",
    metric="bpb",
    prompt="In the beginning",
    full=Scale(
        full_training, ["feedback_transformer_lm_enwik8"], settings.initialised("feedback_transformer_lm_enwik8")
    ),
    small=Scale(SMALL, named=settings.initialised(), layers=[2, 4], shape=small_shape),
)
TEXT8 = LanguageModeling(
    name="text8",
    summary="text8 as letters (enwik8's setting of v3 Table 9; All-attention Table 2)",
    corpus="text8 or text8.zip; with --small any text",
    metric="bpb",
    prompt="in the beginning",
    full=Scale(full_training, ["feedback_transformer_lm_text8"], settings.initialised("feedback_transformer_lm_text8")),
    small=Scale(SMALL, named=settings.initialised(), layers=[2], shape=small_shape),
)
