"""Character-level Penn Treebank (v3 Table 9)."""

import os

from fb_fairseq.errors import UserError
from fb_fairseq.papers.runner.data import check_file, first_file, preprocess, unpack
from fb_fairseq.papers.runner.language_modeling import LanguageModeling
from fb_fairseq.papers.runner.settings import (
    Options,
    Scale,
    Training,
    composed,
    equal_lstm,
    equal_parameters,
    initialised,
    small_sizes,
)
from fb_fairseq.papers.runner.shell import Shell

ARCH = "feedback_transformer_lm_char_ptb"
FULL = Training(
    source="v3 Table 9, char-PTB",
    # "15k updates (or earlier if the validation loss stops decreasing)": after 20 validations without improvement
    updates=15_000,
    finetune_updates=1000,
    lr=0.0015,
    streams=2048,
    tokens_per_sample=128,
    validate_every=250,
    options=dict(clip_norm=1.0, patience=20),
    warmup=dict(lr_scheduler="fixed", warmup_updates=1000),
)
SMALL = Training(
    source="this project: a quarter of the width",
    updates=1000,
    finetune_updates=100,
    lr=0.002,
    streams=64,
    tokens_per_sample=32,
    validate_every=250,
    test_streams=64,
    options=dict(clip_norm=1.0),
    warmup=dict(lr_scheduler="fixed", warmup_updates=100),
)
# The md5 and the size of each file, as published.
FILES = {
    "train": ("f26c4b92c5fdc7b3f8c7cdcb991d8420", 5_101_618),
    "valid": ("aa0affc06ff7c36e977d7cd49e3839bf", 399_782),
    "test": ("8b80168b89c18661a38ef683c0dc3721", 449_945),
}


# The papers vary the depth at a constant number of parameters (v3 Figure 9): feed-forward width and head width are
# inversely proportional to it. With --small, 6 layers have F = 384 and heads of width 24, a quarter of Table 9's.
def check_depth(layers: int) -> None:
    """Stop unless the number of layers divides the widths."""
    if 144 % layers:
        raise UserError(f"--layers {layers}: give 1, 2, 3, 4, 6, 8, 9 or 12, which divide the widths")


def full_shape(arch: str, layers: int) -> Options:
    """The sizes at a number of layers (v3 Figure 9)."""
    check_depth(layers)
    return dict(decoder_layers=layers, decoder_head_dim=96 * 6 // layers, decoder_ffn_embed_dim=1536 * 6 // layers)


def small_shape(arch: str, layers: int) -> Options:
    """The sizes of small models."""
    check_depth(layers)
    if arch == "streaming_lstm_lm":
        return equal_lstm(layers, parameters=4 * 96 * 576 + 2 * 96 * 2304, width=96)
    return dict(
        **small_sizes(arch, layers, width=96),
        decoder_head_dim=24 * 6 // layers,
        attention_dropout=0.1,
        **equal_parameters(arch, ffn=384 * 6 // layers, vectors=384, activation_dropout=0.1),
    )


def prepare(shell: Shell, source: str, folder: str, small: bool) -> None:
    """Every character is a token, and _ separates words; the end of a line is fairseq's </s>."""
    for split, (md5, size) in FILES.items():
        names = (f"ptb.{split}.txt", f"ptb.{split}.txt.gz")
        file = first_file(shell, source, *names, wanted="the folder of PTB's files", what="PTB")
        text, characters = (os.path.join(folder, f"{split}.{kind}") for kind in ("words", "chars"))
        unpack(shell, file, text)
        if not small:
            shell.do(check_file, text, md5, f"ptb.{split}.txt", size)
        shell.run("python", "-m", "fb_fairseq.papers.experiments.corpora.characters", text, characters)
    preprocess(shell, folder, ["train.chars", "valid.chars", "test.chars"], folder, dict(only_source=True))


CHAR_PTB = LanguageModeling(
    name="char_ptb",
    summary="character-level Penn Treebank (v3 Table 9, Figure 9)",
    corpus="the folder of PTB's word-level files, ptb.train.txt, ptb.valid.txt and ptb.test.txt (or .txt.gz)",
    prepare=prepare,
    metric="loss",
    prompt="t h e _ c o m p a n y _",
    full=Scale(FULL, [ARCH], initialised(ARCH), model=lambda name: composed(name, ARCH), shape=full_shape),
    small=Scale(SMALL, named=initialised(), model=composed, layers=[2], shape=small_shape),
)
