"""enwik8 as bytes and text8 as letters: Feedback Transformer v3 Table 9 and §7.6, All-attention §5.1."""

import os

from fb_fairseq.papers.runner.language_modeling import LanguageModeling
from fb_fairseq.papers.runner.settings import Model, Options, Scale, Training, equal_parameters
from fb_fairseq.papers.runner.shell import Shell
from fb_fairseq.papers.runner.text import check_file, preprocess_bytes, require, unpack

FEEDBACK = Training(
    source="v3 Table 9 and §7.6, enwik8",
    **dict(updates=100_000, finetune_updates=10_000, lr=0.0015, streams=1024, tokens_per_sample=128),
    **dict(validate_every=1000, options=dict(clip_norm=0.1)),
    warmup=dict(lr_scheduler="fixed", warmup_updates=8000),
    # "the BPTT length is decreased to 64 for the first half of the training"
    bptt_warmup=dict(bptt_warmup_tokens=64, bptt_warmup_iterations=50_000),
)
ALL_ATTENTION = Training(
    source="All-attention §5.1; the published code evaluates with 8 streams",
    # The paper gives no number of updates: it fine-tunes "when the loss on validation stops decreasing".
    **dict(updates=600_000, finetune_updates=25_000, lr=0.07, streams=64, tokens_per_sample=512),
    **dict(validate_every=2000, optimizer="clipped_adagrad"),
    options=dict(adagrad_clip=0.03, clip_norm=0, patience=10),
    warmup=dict(lr_scheduler="fixed", warmup_updates=32_000),
)
SMALL = Training(
    source="this project: minutes to an hour on a CPU",
    **dict(updates=1500, finetune_updates=150, lr=0.002, streams=64, tokens_per_sample=32, validate_every=250),
    **dict(test_streams=64, options=dict(clip_norm=1.0), warmup=dict(lr_scheduler="fixed", warmup_updates=100)),
)
SMALL_MODELS = ("feedback_transformer_lm", "relative_transformer_lm", "all_attention_lm")
TEXT8_MD5, ENWIK8_MD5, SIZE = "3bea1919949baf155f99411df5fada7e", "a1fa5ffddb56f4953e226637dabbb36a", 100_000_000


def full_training(arch: str) -> Training:
    """All-attention and its baselines, ``relative_transformer_lm_char_small`` and ``_large``, have their own."""
    own = arch.startswith(("all_attention_lm_", "relative_transformer_lm_char_"))
    return ALL_ATTENTION if own else FEEDBACK


def small_shape(arch: str, layers: int) -> Options:
    """The sizes of small models."""
    return dict(
        **dict(decoder_normalize_before=True, decoder_layers=layers, decoder_embed_dim=128),
        **dict(decoder_attention_heads=4, attention_span=64),
        **equal_parameters(arch, ffn=512),
    )


def full(arch: str) -> Scale:
    """The papers' setting."""
    origin = arch.replace("feedback", "relative", 1)
    return Scale(training=full_training, models=[arch], named={"initialised": Model(arch, init_from=origin)})


def small(*layers: int) -> Scale:
    """A setting for a CPU."""
    initialised = Model("feedback_transformer_lm", init_from="relative_transformer_lm")
    named = {"initialised": initialised}
    return Scale(training=SMALL, models=SMALL_MODELS, named=named, layers=layers, shape=small_shape)


def prepare_enwik8(shell: Shell, source: str, folder: str, small: bool) -> None:
    """Its bytes."""
    require(shell, source, "enwik8 or enwik8.zip (http://mattmahoney.net/dc/enwik8.zip)")
    text = os.path.join(folder, "enwik8")
    unpack(shell, source, text, "enwik8")
    if not small:
        check_file(shell, text, ENWIK8_MD5, "enwik8", SIZE)
    preprocess_bytes(shell, text, folder)


def prepare_text8(shell: Shell, source: str, folder: str, small: bool) -> None:
    """Its letters. DATA is text8 itself, or a Wikipedia dump, which is cleaned by text8's rules."""
    require(shell, source, "text8 or text8.zip (http://mattmahoney.net/dc/text8.zip), or enwik9")
    text, unpacked = os.path.join(folder, "text8"), os.path.join(folder, "unpacked")
    unpack(shell, source, unpacked, "text8")
    if is_dump(shell, shell.do(lambda: unpacked, otherwise=source)):
        shell.run("python", "-m", "fb_fairseq.papers.experiments.corpora.clean_wikipedia", unpacked, text)
        shell.run("rm", unpacked)
    else:
        shell.run("mv", unpacked, text)
    if not small:
        check_file(shell, text, TEXT8_MD5, "text8", SIZE)
    preprocess_bytes(shell, text, folder)


def is_dump(shell: Shell, path: str) -> bool:
    """Whether a file is a Wikipedia dump in XML. The one that the word DATA stands for is taken for one."""
    if not os.path.isfile(path):
        shell.comment("(only if DATA is a Wikipedia dump; otherwise: mv, to the same file)")
        return True
    with open(path, "rb") as file:
        return any(b"<text " in line for line in file)


ENWIK8 = LanguageModeling(
    **dict(name="enwik8", summary="enwik8 as bytes (v3 Table 9; All-attention Table 1)"),
    **dict(corpus="enwik8 or enwik8.zip; with --small any text", prepare=prepare_enwik8, metric="bpb"),
    **dict(prompt="In the beginning", full=full("feedback_transformer_lm_enwik8"), small=small(2, 4)),
)
TEXT8 = LanguageModeling(
    **dict(name="text8", summary="text8 as letters (enwik8's setting of v3 Table 9; All-attention Table 2)"),
    **dict(corpus="text8, text8.zip or enwik9; with --small any Wikipedia dump or text", prepare=prepare_text8),
    **dict(metric="bpb", prompt="in the beginning", full=full("feedback_transformer_lm_text8"), small=small(2)),
)
