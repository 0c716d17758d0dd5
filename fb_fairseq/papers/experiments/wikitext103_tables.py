"""The papers' comparisons on WikiText-103: the rows of v3 Table 6 and v1 Tables 6 and 7, and end-of-line symbols (v3
§7.6).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from fb_fairseq.papers.experiments.settings import Model, Scale, Training
from fb_fairseq.papers.experiments.wikitext103 import FEEDBACK, FULL, SMALL, recipe, small_shape

TRANSFORMER_LM, FEEDBACK_LM = "relative_transformer_lm", "feedback_transformer_lm"
# v1 Table 6 has 12 layers and 140M parameters. It does not give the widths: these are wikitext103_large's, but for the
# feed-forward width.
TWELVE_LAYERS = dict(decoder_layers=12, decoder_ffn_embed_dim=2048)


def scales(rows: Mapping[str, Callable[[bool], Model]]) -> dict[str, Scale]:
    """The scales of an experiment whose models are the rows of a table.

    Args:
        rows: by name, a function that makes the model, given whether it is a small one.
    """
    full = {name: row(False) for name, row in rows.items()}
    small = {name: row(True) for name, row in rows.items()}
    return dict(
        full=Scale(FULL, list(full), full, architectures=False),
        small=Scale(SMALL, list(small), small, architectures=False, layers=[2], shape=small_shape),
    )


def ablation_row(small: bool, *, arch: str, post: bool = False, span: bool = False, bptt: bool = False) -> Model:
    """A row of v3 Table 6. Models are not fine-tuned.

    Args:
        small: whether it is the small model.
        arch: ``TRANSFORMER_LM`` or ``FEEDBACK_LM``.
        post: post-norm, at a lower learning rate, instead of pre-norm.
        span: with an adaptive span (v3 §7.6).
        bptt: with a BPTT warm-up.
    """
    options = {} if small else dict(TWELVE_LAYERS)
    if post:
        options["no_decoder_normalize_before"] = True
    if span:
        options.update(adaptive_span=True, attention_span=256 if small else 2048, adaptive_span_loss=0.00001)

    def training(base: Training) -> Training:
        return replace(
            base,
            finetune_updates=0,
            lr=base.post_norm_lr if post else base.lr,
            bptt_warmup=base.bptt_warmup if bptt else {},
        )

    return Model(arch if small else f"{arch}_wikitext103_large", options, training)


ABLATION_ROWS = {
    "transformer-post": dict(arch=TRANSFORMER_LM, post=True),
    "transformer-post-bptt": dict(arch=TRANSFORMER_LM, post=True, bptt=True),
    "transformer-pre-bptt": dict(arch=TRANSFORMER_LM, bptt=True),
    "transformer-pre-span": dict(arch=TRANSFORMER_LM, span=True),
    "feedback-post": dict(arch=FEEDBACK_LM, post=True),
    "feedback-post-bptt": dict(arch=FEEDBACK_LM, post=True, bptt=True),
    "feedback-pre-bptt": dict(arch=FEEDBACK_LM, bptt=True),
    "feedback-pre-span-bptt": dict(arch=FEEDBACK_LM, span=True, bptt=True),
}
WIKITEXT103_ABLATION = recipe(
    "wikitext103_ablation",
    "post-norm or pre-norm, adaptive span, BPTT warm-up on WikiText-103 (v3 Table 6, v1 Table 7)",
    **scales({name: partial(ablation_row, **row) for name, row in ABLATION_ROWS.items()}),
)


def initialised_row(small: bool, **row) -> Model:
    """A row of v1 Table 6 that is initialised with the post-norm Transformer. The paper does not say for how long these
    are trained: here, for half as many updates.

    Args:
        small, row: see ``ablation_row``, whose model it would be.
    """
    model = ablation_row(small, **row)

    def training(base: Training) -> Training:
        base = model.training(base)
        warmup = dict(base.bptt_warmup)
        iterations = warmup.get("bptt_warmup_iterations")
        if isinstance(iterations, int):  # (a function scales by itself)
            warmup["bptt_warmup_iterations"] = -(-iterations // 2)
        return replace(base, updates=-(-base.updates // 2), bptt_warmup=warmup)

    return replace(model, training=training, init_from="transformer-post")


# The rows of v1 Table 6. Its 19.7 and 19.9 are post-norm rows of v1 Table 7. Its Transformer, 21.2, is not in that
# table: pre-norm with a BPTT warm-up has 21.0 there, post-norm 22.9. Post-norm models need a post-norm Transformer to
# start from.
TRAINING_TIME_ROWS = {
    "transformer": partial(ablation_row, arch=TRANSFORMER_LM),
    "transformer-post": partial(ablation_row, **ABLATION_ROWS["transformer-post"]),
    "feedback": partial(ablation_row, **ABLATION_ROWS["feedback-post"]),
    "feedback-bptt": partial(ablation_row, **ABLATION_ROWS["feedback-post-bptt"]),
    "initialised": partial(initialised_row, **ABLATION_ROWS["feedback-post"]),
    "initialised-bptt": partial(initialised_row, **ABLATION_ROWS["feedback-post-bptt"]),
}
WIKITEXT103_TRAINING_TIME = recipe(
    "wikitext103_training_time",
    "training time with BPTT warm-up and initialisation on WikiText-103 (v1 Table 6)",
    **scales(TRAINING_TIME_ROWS),
    hours=True,
)


def without_eos(small: bool) -> Model:
    """A model that is trained, fine-tuned and evaluated without end-of-line symbols.

    ``small``: whether it is the small model.
    """
    arch = FEEDBACK_LM if small else FEEDBACK
    return Model(arch, dict(omit_eos=True), evaluation=dict(omit_eos=True))


def with_eos(small: bool) -> Model:
    """The model of ``without_eos``, fine-tuned further on text with end-of-line symbols, as models are fine-tuned and
    for as long (v3 §7.6).

    ``small``: whether it is the small model.
    """

    def training(base: Training) -> Training:
        return replace(
            base, updates=base.finetune_updates, finetune_updates=0, lr=base.lr / 10, warmup={}, bptt_warmup={}
        )

    return Model(FEEDBACK_LM if small else FEEDBACK, training=training, finetune_from="without-eos")


WIKITEXT103_END_OF_LINE = recipe(
    "wikitext103_end_of_line",
    "end-of-line symbols on WikiText-103 (v3 §7.6)",
    **scales({"without-eos": without_eos, "with-eos": with_eos}),
)
