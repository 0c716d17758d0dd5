"""The ablations of All-attention §5.3 (Figure 2): the number of persistent vectors, and how attention combines them
with the context."""

import os
import re
from collections.abc import Callable

from fb_fairseq.errors import UserError
from fb_fairseq.papers.experiments.bytes_and_letters import SIZE, SMALL, TEXT8_MD5, full_training
from fb_fairseq.papers.runner.language_modeling import LanguageModeling, ModelRun
from fb_fairseq.papers.runner.settings import Model, Options, Scale, equal_parameters
from fb_fairseq.papers.runner.shell import Shell
from fb_fairseq.papers.runner.text import check_file, preprocess_bytes, require, unpack

VARIANTS = ("attn-split", "head-split", "single-head", "ff-attn")


def model(arch: str, size: int, feed_forward: Options, baseline: str) -> Callable[[str], Model | None]:
    """A function that makes a model of a name: a number of vectors (N512), a variant with so many vectors, or the
    baseline's Transformer. FF-attn has further options."""

    def describe(name: str) -> Model:
        vectors = re.fullmatch(r"N(\d+)", name)
        if vectors:
            return Model(arch, dict(persistent_memory_size=int(vectors[1])))
        if name in VARIANTS:
            more = feed_forward if name == "ff-attn" else {}
            return Model(arch, dict(persistent_memory_variant=name, persistent_memory_size=size, **more))
        if name == "relative_transformer_lm":
            return Model(baseline)
        variants = ", ".join(VARIANTS)
        raise UserError(f"--models {name}: unknown; give N<number>, {variants}, relative_transformer_lm")

    return describe


def full_model(name: str) -> Model | None:
    """A model of the papers' size."""
    # "we decrease the number of layers to 24 and increase the feedforward size to 3072"
    large = "all_attention_lm_char_large"
    if name == "ff-attn":
        return model(large, 3072, dict(decoder_layers=24), "")(name)
    # The baseline is the larger one of All-attention Table 2.
    return model(large, 2048, {}, "relative_transformer_lm_char_large")(name)


def small_shape(arch: str, layers: int) -> Options:
    """As in the paper, all models normalise after each sublayer."""
    return dict(
        **dict(decoder_layers=layers, decoder_embed_dim=128, decoder_attention_heads=4, attention_span=64),
        **equal_parameters(arch, ffn=512),
    )


def prepare(shell: Shell, source: str, folder: str, small: bool) -> None:
    """text8, or with ``small`` the bytes of any text."""
    require(shell, source, "text8 or text8.zip (http://mattmahoney.net/dc/text8.zip), or --small TEXT")
    text = os.path.join(folder, "text")
    unpack(shell, source, text, "text8")
    if not small:
        check_file(shell, text, TEXT8_MD5, "text8", SIZE)
    preprocess_bytes(shell, text, folder)


def draw(shell: Shell, out: str, runs: list[ModelRun]) -> None:
    """Both panels of the figure."""
    shell.comment("draw the figure of the paper")
    shell.run("python", "-m", "fb_fairseq.papers.experiments.figures.persistent_memory", out)


PERSISTENT_MEMORY = LanguageModeling(
    **dict(name="persistent_memory", summary="number and use of persistent vectors (All-attention Figure 2)"),
    **dict(corpus="text8 or text8.zip; with --small any text", prepare=prepare, metric="bpb"),
    prompt="in the beginning",
    full=Scale(
        **dict(training=full_training, models=["N0", "N512", "N1024", "N2048", "N4096", *VARIANTS]),
        **dict(architectures=False, model=full_model),
    ),
    small=Scale(
        training=SMALL,
        models=["relative_transformer_lm", *(f"N{n}" for n in (0, 64, 128, 256, 512, 1024)), *VARIANTS],
        **dict(architectures=False, model=model("all_attention_lm", 512, {}, "relative_transformer_lm")),
        **dict(layers=[2], shape=small_shape),
    ),
    after=[draw],
)
