"""enwik8 as bytes and text8 as letters: Feedback Transformer v3 Table 9 and §7.6, All-attention §5.1. And ablations on
text8, All-attention §5.3 (Figure 2): the number of persistent vectors, and how attention combines them with the
context.
"""

import re
from functools import partial

from fb_fairseq.errors import UserError
from fb_fairseq.papers.experiments import settings
from fb_fairseq.papers.experiments.settings import LanguageModeling, Model, Options, Scale, Training

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
    bptt_warmup=dict(bptt_warmup_tokens=64, bptt_warmup_iterations=50_000),
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
SMALL = Training(
    # this project: minutes to an hour on a CPU
    updates=1500,
    finetune_updates=150,
    lr=0.002,
    streams=64,
    tokens_per_sample=32,
    validate_every=250,
    test_streams=64,
    options=dict(clip_norm=1.0),
    warmup=dict(lr_scheduler="fixed", warmup_updates=100),
)
VARIANTS = ("attn-split", "head-split", "single-head", "ff-attn")  # of attention on persistent vectors
TEXT8_MD5, ENWIK8_MD5 = "3bea1919949baf155f99411df5fada7e", "a1fa5ffddb56f4953e226637dabbb36a"


def full_training(arch: str) -> Training:
    """All-attention and its baselines, ``relative_transformer_lm_char_small`` and ``_large``, have their own."""
    own = arch.startswith(("all_attention_lm_", "relative_transformer_lm_char_"))
    return ALL_ATTENTION if own else FEEDBACK


def small_shape(arch: str, layers: int) -> Options:
    """The sizes of small models."""
    if arch == "streaming_lstm_lm":
        return settings.equal_lstm(layers, parameters=12 * 128**2 * layers, width=128, words=2 * 256)
    return {**settings.small_sizes(arch, layers, width=128), **settings.equal_parameters(arch, ffn=512)}


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


def persistent_model(name: str, arch: str, size: int, baseline: str, feed_forward: Options) -> Model:
    """The model of a name: a number of vectors (N512), a variant with so many vectors, or the baseline's Transformer.
    FF-attn has further options.
    """
    vectors = re.fullmatch(r"N(\d+)", name)
    if vectors:
        return Model(arch, dict(persistent_memory_size=int(vectors[1])))
    if name in VARIANTS:
        more = feed_forward if name == "ff-attn" else {}
        return Model(arch, {"persistent_memory_variant": name, "persistent_memory_size": size, **more})
    if name == "relative_transformer_lm":
        return Model(baseline)
    variants = ", ".join(VARIANTS)
    raise UserError(f"--models {name}: unknown; give N<number>, {variants}, relative_transformer_lm")


FULL_MODEL = partial(
    persistent_model,
    arch="all_attention_lm_char_large",
    size=2048,
    baseline="relative_transformer_lm_char_large",  # the larger one of All-attention Table 2
    # "we decrease the number of layers to 24 and increase the feedforward size to 3072"
    feed_forward=dict(persistent_memory_size=3072, decoder_layers=24),
)
SMALL_MODEL = partial(
    persistent_model, arch="all_attention_lm", size=512, baseline="relative_transformer_lm", feed_forward={}
)


def post_norm_shape(arch: str, layers: int) -> Options:
    """The same sizes; as in the paper, all models normalise after each sublayer."""
    return {**small_shape(arch, layers), "decoder_normalize_before": False}


PERSISTENT_MEMORY = LanguageModeling(
    name="persistent_memory",
    figure=("persistent_memory", "figure2.png"),
    summary="number and use of persistent vectors (All-attention Figure 2)",
    corpus="text8 or text8.zip; with --small any text",
    metric="bpb",
    prompt="in the beginning",
    full=Scale(
        full_training, ["N0", "N512", "N1024", "N2048", "N4096", *VARIANTS], architectures=False, model=FULL_MODEL
    ),
    small=Scale(
        SMALL,
        ["relative_transformer_lm", "N0", "N64", "N128", "N256", "N512", "N1024", *VARIANTS],
        architectures=False,
        model=SMALL_MODEL,
        layers=[2],
        shape=post_norm_shape,
    ),
)
