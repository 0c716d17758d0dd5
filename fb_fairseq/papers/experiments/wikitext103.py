"""WikiText-103 with adaptive input and softmax, and the papers' experiments on it (v3 Table 9 and §7.6)."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from fb_fairseq.errors import UserError
from fb_fairseq.papers.experiments import settings, sizes
from fb_fairseq.papers.experiments.settings import LanguageModeling, Model, Options, Scale, Training

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
    bptt_warmup=dict(bptt_warmup_tokens=32, bptt_warmup_iterations=50_000),
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
# v1 Table 6 has 12 layers and 140M parameters. It does not give the widths: these are wikitext103_large's, but for the
# feed-forward width.
TWELVE_LAYERS = dict(decoder_layers=12, decoder_ffn_embed_dim=2048)
CORPUS = "wikitext-103-v1.zip; with --small a folder with train.txt, valid.txt and test.txt (or .txt.gz, or \
wiki.train.tokens, …), such as WikiText-2's"
MD5 = "9ddaacaf6af0710eda8c456decff7832"


def full_training(arch: str) -> Training:
    """All-attention has its own setting."""
    return ALL_ATTENTION if arch.startswith("all_attention_lm_wikitext103") else FULL


# Feed-forward width and head width are inversely proportional to the depth, so that the number of parameters is
# constant (v3 Figure 9).
def full_shape(arch: str, layers: int) -> Options:
    """The sizes at a number of layers."""
    base = 4 if arch.endswith("_transformer_lm_wikitext103_small") else 8
    if "_transformer_lm_wikitext103_" not in arch:
        raise UserError(f"--layers: only for Transformers and Feedback Transformers; leave out {arch}")
    if 128 * base % layers:
        raise UserError(f"--layers {layers}: give a power of two up to {128 * base}, which divides the widths")
    head = 128 * base // layers
    ffn = 4096 * base // layers
    return dict(decoder_layers=layers, decoder_head_dim=head, decoder_ffn_embed_dim=ffn)


def small_shape(arch: str, layers: int) -> Options:
    """The sizes of small models."""
    if 64 % layers:
        raise UserError(f"--layers {layers}: give 1, 2, 4, 8, 16 or 32, which divide the widths")
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
    return dict(
        **sizes.small_sizes(arch, layers, width=128),
        decoder_head_dim=64 // layers,
        **words,
        attention_dropout=0.1,
        **sizes.equal_parameters(arch, ffn=1024 // layers, vectors=512, activation_dropout=0.1),
    )


recipe = partial(LanguageModeling, corpus=CORPUS, metric="ppl")


def rows(names: Iterable[str], model_of: Callable[[str, bool], Model]) -> dict[str, Scale]:
    """The scales of an experiment whose models are the rows of a table.

    Args:
        names: of the rows.
        model_of: makes the model of a name, and of whether it is a small one.
    """
    full = {name: model_of(name, False) for name in names}
    small = {name: model_of(name, True) for name in names}
    return dict(
        full=Scale(FULL, list(full), full, architectures=False),
        small=Scale(SMALL, list(small), small, architectures=False, layers=[2], shape=small_shape),
    )


WIKITEXT103 = recipe(
    "wikitext103",
    "WikiText-103 as words (v3 Tables 3 and 9, v1 Table 4; All-attention Table 3)",
    full=Scale(full_training, [FEEDBACK], settings.initialised(FEEDBACK), shape=full_shape),
    small=Scale(SMALL, named=settings.initialised(), layers=[2], shape=small_shape),
)


def ablation_row(name: str, small: bool) -> Model:
    """A row of v3 Table 6, such as ``feedback-pre-span-bptt``: post-norm at a lower learning rate or pre-norm, with an
    adaptive span or without (v3 §7.6), with a BPTT warm-up or without. Models are not fine-tuned.
    """
    model, norm, *more = name.split("-")
    arch = "relative_transformer_lm" if model == "transformer" else "feedback_transformer_lm"
    options = {} if small else dict(TWELVE_LAYERS)
    if norm == "post":
        options["no_decoder_normalize_before"] = True
    if "span" in more:
        options.update(adaptive_span=True, attention_span=256 if small else 2048, adaptive_span_loss=0.00001)

    def training(base: Training) -> Training:
        return replace(
            base,
            finetune_updates=0,
            lr=base.post_norm_lr if norm == "post" else base.lr,
            bptt_warmup=base.bptt_warmup if "bptt" in more else {},
        )

    return Model(arch if small else f"{arch}_wikitext103_large", options, training)


ABLATION_ROWS = (
    "transformer-post",
    "transformer-post-bptt",
    "transformer-pre-bptt",
    "transformer-pre-span",
    "feedback-post",
    "feedback-post-bptt",
    "feedback-pre-bptt",
    "feedback-pre-span-bptt",
)
WIKITEXT103_ABLATION = recipe(
    "wikitext103_ablation",
    "post-norm or pre-norm, adaptive span, BPTT warm-up on WikiText-103 (v3 Table 6, v1 Table 7)",
    **rows(ABLATION_ROWS, ablation_row),
)


# Rows of v1 Table 6, and those of the ablation that they are. Its 19.7 and 19.9 are post-norm rows of v1 Table 7. Its
# Transformer, 21.2, is not in that table: pre-norm with a BPTT warm-up has 21.0 there, post-norm 22.9. Post-norm models
# need a post-norm Transformer to start from.
TRAINING_TIME_ROWS = {
    "transformer": "transformer-pre",
    "transformer-post": "transformer-post",
    "feedback": "feedback-post",
    "feedback-bptt": "feedback-post-bptt",
    "initialised": "feedback-post",
    "initialised-bptt": "feedback-post-bptt",
}


def training_time_row(name: str, small: bool) -> Model:
    """A row of v1 Table 6. The paper does not say for how long it trains the initialised models: here, for half as many
    updates.
    """
    row = ablation_row(TRAINING_TIME_ROWS[name], small)
    if not name.startswith("initialised"):
        return row

    def training(base: Training) -> Training:
        base = row.training(base)
        warmup = dict(base.bptt_warmup)
        iterations = warmup.get("bptt_warmup_iterations")
        if isinstance(iterations, int):  # (a function scales by itself)
            warmup["bptt_warmup_iterations"] = -(-iterations // 2)
        return replace(base, updates=-(-base.updates // 2), bptt_warmup=warmup)

    return replace(row, training=training, init_from="transformer-post")


WIKITEXT103_TRAINING_TIME = recipe(
    "wikitext103_training_time",
    "training time with BPTT warm-up and initialisation on WikiText-103 (v1 Table 6)",
    **rows(TRAINING_TIME_ROWS, training_time_row),
    hours=True,
)


def end_of_line_row(name: str, small: bool) -> Model:
    """``without-eos``: trained, fine-tuned and evaluated without end-of-line symbols. ``with-eos``: that model,
    fine-tuned further on text with them, as models are fine-tuned and for as long (v3 §7.6).
    """
    arch = "feedback_transformer_lm" if small else FEEDBACK
    if name == "without-eos":
        return Model(arch, dict(omit_eos=True), evaluation=dict(omit_eos=True))

    def training(base: Training) -> Training:
        return replace(
            base, updates=base.finetune_updates, finetune_updates=0, lr=base.lr / 10, warmup={}, bptt_warmup={}
        )

    return Model(arch, training=training, finetune_from="without-eos")


WIKITEXT103_END_OF_LINE = recipe(
    "wikitext103_end_of_line",
    "end-of-line symbols on WikiText-103 (v3 §7.6)",
    **rows(("without-eos", "with-eos"), end_of_line_row),
)
