"""WikiText-103 with adaptive input and softmax (v3 Table 9 and §7.6; All-attention §5.1)."""

from functools import partial

from fb_fairseq.errors import UserError
from fb_fairseq.papers.experiments import settings, sizes
from fb_fairseq.papers.experiments.settings import LanguageModeling, Options, Scale, Training

FULL = Training(
    # v3 Table 9 and §7.6, WikiText-103
    updates=200_000,
    finetune_updates=10_000,
    lr=0.0007,
    streams=512,
    tokens_per_sample=256,
    validate_every=2000,
    options=dict(clip_norm=0.1),
    warmup=dict(lr_scheduler="fixed", warmup_updates=8000),
    # "The BPTT length is increased from 32 to 256 during training, doubling after every 50k updates" (v1)
    bptt_warmup=dict(bptt_warmup_tokens=32, bptt_warmup_iterations=lambda updates: updates // 4),
    post_norm_lr=0.00025,  # not in the paper: that of the all-attention paper, whose models are post-norm
)
ALL_ATTENTION = Training(
    # All-attention §5.1, which gives no number of updates: those are the published code's
    updates=800_000,
    finetune_updates=50_000,
    lr=0.00025,
    streams=64,
    tokens_per_sample=256,
    validate_every=2000,
    options=dict(clip_norm=1.0),
    warmup=dict(lr_scheduler="fixed", warmup_updates=8000),
)
SMALL = Training(
    # this project: an hour on a CPU
    updates=600,
    finetune_updates=60,
    lr=0.008,
    streams=64,
    tokens_per_sample=32,
    validate_every=200,
    test_streams=64,
    options=dict(clip_norm=0.5),
    warmup=dict(lr_scheduler="fixed", warmup_updates=100),
    bptt_warmup=dict(bptt_warmup_tokens=8, bptt_warmup_iterations=lambda updates: -(-updates // 3)),
    post_norm_lr=0.003,  # about the same fraction of lr as in the papers' setting
)
FEEDBACK = "feedback_transformer_lm_wikitext103_small"
CORPUS = "wikitext-103-v1.zip; with --small a folder with train.txt, valid.txt and test.txt (or .txt.gz, or \
wiki.train.tokens, …), such as WikiText-2's"
MD5 = "9ddaacaf6af0710eda8c456decff7832"


def full_training(arch: str) -> Training:
    """The papers' setting of an architecture: ``ALL_ATTENTION`` for those of that paper, ``FULL`` for all others."""
    return ALL_ATTENTION if arch.startswith("all_attention_lm_wikitext103") else FULL


def full_shape(arch: str, layers: int) -> Options:
    """The sizes of a Transformer or Feedback Transformer at a number of layers, those of v3 Figure 9: the widths of the
    heads and of the feed-forward sublayers are inversely proportional to it, so that the number of parameters is
    constant.

    Args:
        arch: one of the architectures ``…_transformer_lm_wikitext103_…``, otherwise a ``UserError``.
        layers: a power of two up to 512 (of ``…_small``) or 1024, otherwise a ``UserError``.
    """
    if "_transformer_lm_wikitext103_" not in arch:
        raise UserError(f"--layers: only for Transformers and Feedback Transformers; leave out {arch}")
    base = 4 if arch.endswith("_small") else 8  # layers of the architecture itself
    if 128 * base % layers:
        raise UserError(f"--layers {layers}: give a power of two up to {128 * base}, which divides the widths")
    head = 128 * base // layers
    ffn = 4096 * base // layers
    return dict(decoder_layers=layers, decoder_head_dim=head, decoder_ffn_embed_dim=ffn)


def small_shape(arch: str, layers: int) -> Options:
    """The sizes of a small model.

    Args:
        arch: one of this package's language models.
        layers: their number; but for LSTMs, a power of two up to 64, otherwise a ``UserError``.
    """
    words = dict(
        adaptive_input=True,
        adaptive_input_cutoff="2000,8000",
        adaptive_softmax_cutoff="2000,8000",
        tie_adaptive_weights=True,
        tie_adaptive_proj=True,
        embedding_dropout=0.1,
        output_dropout=0.1,
    )
    if arch == "streaming_lstm_lm":  # WikiText-2 has 33,278 words
        each = 2000 + 6000 // 4 + 25_278 // 16
        return {
            **sizes.equal_lstm(layers, parameters=4 * 128 * 256 + 2 * 128 * 1024, width=128, words=each),
            **words,
        }
    if 64 % layers:
        raise UserError(f"--layers {layers}: give a power of two up to 64, which divides the widths")
    return dict(
        **sizes.small_sizes(arch, layers, width=128),
        decoder_head_dim=64 // layers,
        **words,
        attention_dropout=0.1,
        **sizes.equal_parameters(arch, ffn=1024 // layers, vectors=512, activation_dropout=0.1),
    )


recipe = partial(LanguageModeling, corpus=CORPUS, metric="ppl")


WIKITEXT103 = recipe(
    "wikitext103",
    "WikiText-103 as words (v3 Tables 3 and 9, v1 Table 4; All-attention Table 3)",
    full=Scale(full_training, [FEEDBACK], settings.initialised(FEEDBACK), shape=full_shape),
    small=Scale(SMALL, named=settings.initialised(), layers=[2], shape=small_shape),
)
