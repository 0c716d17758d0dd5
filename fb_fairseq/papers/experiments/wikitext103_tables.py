"""The papers' comparisons on WikiText-103: the rows of v3 Table 6 and v1 Tables 6 and 7, and end-of-line symbols (v3
§7.6).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fb_fairseq.papers.experiments.settings import Model, Scale, Training
from fb_fairseq.papers.experiments.wikitext103 import FEEDBACK, FULL, SMALL, recipe, small_shape

TRANSFORMER_LM, FEEDBACK_LM = "relative_transformer_lm", "feedback_transformer_lm"
# v1 Table 6 has 12 layers and 140M parameters. It does not give the widths: these are wikitext103_large's, but for the
# feed-forward width.
TWELVE_LAYERS = dict(decoder_layers=12, decoder_ffn_embed_dim=2048)


@dataclass(frozen=True)
class Row:
    """A row of a table. Models are not fine-tuned.

    Attributes:
        arch: ``TRANSFORMER_LM`` or ``FEEDBACK_LM``.
        post: post-norm, at a lower learning rate, instead of pre-norm.
        span: with an adaptive span (v3 §7.6).
        bptt: with a BPTT warm-up.
        initialised: with the post-norm Transformer. v1 does not say for how long these models are trained: here, for
            half as many updates.
    """

    arch: str
    post: bool = False
    span: bool = False
    bptt: bool = False
    initialised: bool = False

    def training(self, base: Training) -> Training:
        """The setting of the row's model. ``base``: that of the experiment."""
        return replace(
            base,
            updates=-(-base.updates // 2) if self.initialised else base.updates,
            finetune_updates=0,
            lr=base.post_norm_lr if self.post else base.lr,
            bptt_warmup=base.bptt_warmup if self.bptt else {},
        )

    def model(self, small: bool) -> Model:
        """The row's model, the papers' or a small one."""
        options = {} if small else dict(TWELVE_LAYERS)
        if self.post:
            options["no_decoder_normalize_before"] = True
        if self.span:
            options.update(adaptive_span=True, attention_span=256 if small else 2048, adaptive_span_loss=0.00001)
        arch = self.arch if small else f"{self.arch}_wikitext103_large"
        return Model(arch, options, self.training, init_from="transformer-post" if self.initialised else "")


def scales(full: Mapping[str, Model], small: Mapping[str, Model]) -> dict[str, Scale]:
    """The scales of an experiment with these models, by their names."""
    return dict(
        full=Scale(FULL, list(full), full, architectures=False),
        small=Scale(SMALL, list(small), small, architectures=False, layers=[2], shape=small_shape),
    )


def table(rows: Mapping[str, Row]) -> dict[str, Scale]:
    """The scales of an experiment whose models are the rows of a table, by their names."""
    full = {name: row.model(small=False) for name, row in rows.items()}
    return scales(full, {name: row.model(small=True) for name, row in rows.items()})


ABLATION_ROWS = {
    "transformer-post": Row(TRANSFORMER_LM, post=True),
    "transformer-post-bptt": Row(TRANSFORMER_LM, post=True, bptt=True),
    "transformer-pre-bptt": Row(TRANSFORMER_LM, bptt=True),
    "transformer-pre-span": Row(TRANSFORMER_LM, span=True),
    "feedback-post": Row(FEEDBACK_LM, post=True),
    "feedback-post-bptt": Row(FEEDBACK_LM, post=True, bptt=True),
    "feedback-pre-bptt": Row(FEEDBACK_LM, bptt=True),
    "feedback-pre-span-bptt": Row(FEEDBACK_LM, span=True, bptt=True),
}
WIKITEXT103_ABLATION = recipe(
    "wikitext103_ablation",
    "post-norm or pre-norm, adaptive span, BPTT warm-up on WikiText-103 (v3 Table 6, v1 Table 7)",
    **table(ABLATION_ROWS),
)

# The rows of v1 Table 6. Its 19.7 and 19.9 are post-norm rows of v1 Table 7. Its Transformer, 21.2, is not in that
# table: pre-norm with a BPTT warm-up has 21.0 there, post-norm 22.9. Post-norm models need a post-norm Transformer to
# start from.
TRAINING_TIME_ROWS = {
    "transformer": Row(TRANSFORMER_LM),
    "transformer-post": Row(TRANSFORMER_LM, post=True),
    "feedback": Row(FEEDBACK_LM, post=True),
    "feedback-bptt": Row(FEEDBACK_LM, post=True, bptt=True),
    "initialised": Row(FEEDBACK_LM, post=True, initialised=True),
    "initialised-bptt": Row(FEEDBACK_LM, post=True, bptt=True, initialised=True),
}
WIKITEXT103_TRAINING_TIME = recipe(
    "wikitext103_training_time",
    "training time with BPTT warm-up and initialisation on WikiText-103 (v1 Table 6)",
    **table(TRAINING_TIME_ROWS),
    hours=True,
)


def further_finetuned(base: Training) -> Training:
    """The setting of a model that is fine-tuned once more, as models are fine-tuned and for as long."""
    return replace(base, updates=base.finetune_updates, finetune_updates=0, lr=base.lr / 10, warmup={}, bptt_warmup={})


def end_of_line(arch: str) -> dict[str, Model]:
    """A model that is trained, fine-tuned and evaluated without end-of-line symbols, and the same one, fine-tuned
    further on text with them (v3 §7.6). ``arch``: their architecture.
    """
    return {
        "without-eos": Model(arch, dict(omit_eos=True), evaluation=dict(omit_eos=True)),
        "with-eos": Model(arch, training=further_finetuned, finetune_from="without-eos"),
    }


WIKITEXT103_END_OF_LINE = recipe(
    "wikitext103_end_of_line",
    "end-of-line symbols on WikiText-103 (v3 §7.6)",
    **scales(end_of_line(FEEDBACK), end_of_line(FEEDBACK_LM)),
)
