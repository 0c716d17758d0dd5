"""Ablations on text8, All-attention §5.3 (Figure 2): the number of persistent vectors, and how attention combines them
with the context.
"""

import re
from functools import partial

from fb_fairseq.errors import UserError
from fb_fairseq.papers.experiments.bytes_and_letters import SMALL, full_training, small_shape
from fb_fairseq.papers.experiments.settings import LanguageModeling, Model, Options, Scale

VARIANTS = ("attn-split", "head-split", "single-head", "ff-attn")  # of attention on persistent vectors


def persistent_model(name: str, arch: str, size: int, baseline: str, feed_forward: Options) -> Model:
    """The model of a name in ``--models``.

    Args:
        name: a number of vectors, such as ``N512``; one of ``VARIANTS``; or ``relative_transformer_lm``.
        arch: the all-attention architecture.
        size: number of the variants' vectors.
        baseline: the Transformer's architecture.
        feed_forward: further options of ``ff-attn``.
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
    """The sizes of small models; as in the paper, all normalise after each sublayer."""
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
