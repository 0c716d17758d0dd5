"""Character-level Penn Treebank (v3 Table 9)."""

from fb_fairseq.errors import UserError
from fb_fairseq.papers.experiments.settings import (
    LanguageModeling,
    Options,
    Scale,
    Training,
    composed,
    initialised,
)
from fb_fairseq.papers.experiments.sizes import equal_lstm, equal_parameters, small_sizes

ARCH = "feedback_transformer_lm_char_ptb"
FULL = Training(
    # v3 Table 9, char-PTB
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
    # this project: a quarter of the width
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
MD5 = {  # of the published files
    "train": "f26c4b92c5fdc7b3f8c7cdcb991d8420",
    "valid": "aa0affc06ff7c36e977d7cd49e3839bf",
    "test": "8b80168b89c18661a38ef683c0dc3721",
}


# The papers vary the depth at a constant number of parameters (v3 Figure 9): feed-forward width and head width are
# inversely proportional to it. With --small, 6 layers have F = 384 and heads of width 24, a quarter of Table 9's.
def check_depth(layers: int) -> None:
    """Stop unless the number of layers divides the widths."""
    if 144 % layers:
        raise UserError(f"--layers {layers}: give a divisor of 144, such as 2, 4, 6 or 9, which divides the widths")


def full_shape(arch: str, layers: int) -> Options:
    """The sizes of a Transformer or Feedback Transformer at a number of layers (v3 Figure 9)."""
    if "_transformer_lm" not in arch:
        raise UserError(f"--layers: only for Transformers and Feedback Transformers; leave out {arch}")
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


CHAR_PTB = LanguageModeling(
    name="char_ptb",
    summary="character-level Penn Treebank (v3 Table 9, Figure 9)",
    corpus="the folder of PTB's word-level files, ptb.train.txt, ptb.valid.txt and ptb.test.txt (or .txt.gz)",
    metric="loss",
    prompt="t h e _ c o m p a n y _",
    full=Scale(FULL, [ARCH], initialised(ARCH), model=lambda name: composed(name, ARCH), shape=full_shape),
    small=Scale(SMALL, named=initialised(), model=composed, layers=[2], shape=small_shape),
)
