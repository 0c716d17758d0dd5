"""Settings of trainings on a task, and its recipes as data: of fairseq's models, and of ``state-tracking``."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Setting:
    """How the models are trained on a task.

    Attributes:
        updates: of training.
        span: attention span in steps.
        layers: of every model.
        streams: in an update, over all processes.
        model: options of all models.
        attention: further options of all models but LSTMs.
        training: options of training.
        lstm: further options of LSTMs; they replace those of ``model`` and ``training``.
        feedback: further options of the Feedback Transformer.
        sequences: options of ``synthetic-tasks``.
        tri_stage: whether the learning rate stays constant while accuracy may be on a plateau, and then falls to a
            tenth, by ``schedule``; otherwise ``training`` has the schedule.
        growing_span: whether longer spans of attention grow from 8 steps: Feedback Transformers otherwise learn late
            with them.
    """

    updates: int
    span: int
    layers: int
    streams: int
    model: Mapping[str, Any]
    attention: Mapping[str, Any]
    training: Mapping[str, Any]
    lstm: Mapping[str, Any]
    feedback: Mapping[str, Any] = field(default_factory=dict)
    sequences: Mapping[str, Any] = field(default_factory=dict)
    tri_stage: bool = False
    growing_span: bool = False

    def changed(self, **changes: Any) -> "Setting":
        """This setting with other values; those of a mapping are added to it, and None leaves what is there."""
        new = {}
        for name, value in changes.items():
            if isinstance(value, Mapping):
                new[name] = {**getattr(self, name), **value}
            elif value is not None:
                new[name] = value
        return replace(self, **new)

    def schedule(self) -> dict[str, Any]:
        """The options of the learning rate's schedule; empty unless ``tri_stage``."""
        if not self.tri_stage:
            return {}
        warmup = self.updates // 20
        decay = -(-self.updates // 5)
        hold = self.updates - warmup - decay
        steps = dict(warmup_steps=warmup, hold_steps=hold, decay_steps=decay)
        return dict(lr_scheduler="tri_stage", **steps, final_lr_scale=0.1)


# In each, all models have the same number of layers and the same width. The LSTM has no feed-forward sublayers.
SMALL = Setting(  # minutes on a CPU; the Feedback Transformer shares its projections, as by default
    updates=1000,
    span=8,
    layers=2,
    streams=64,
    model=dict(decoder_embed_dim=64),
    attention=dict(decoder_ffn_embed_dim=256, decoder_attention_heads=4, decoder_normalize_before=True),
    training=dict(tokens_per_sample=32, lr=0.002, clip_norm=1.0),
    lstm=dict(lr=0.005),
    tri_stage=True,
    growing_span=True,
)
FULL = Setting(  # v3 Table 9, random walk, which gives no number of updates
    updates=10_000,
    span=100,
    layers=4,
    streams=512,
    model=dict(decoder_embed_dim=256),
    attention=dict(
        decoder_ffn_embed_dim=1024,
        decoder_attention_heads=4,
        decoder_normalize_before=True,
        attention_dropout=0.2,
        activation_dropout=0.2,
    ),
    feedback=dict(memory_projections="per-layer"),  # 3.2M parameters each
    training=dict(tokens_per_sample=64, lr=0.0001, clip_norm=0.1, lr_scheduler="fixed", warmup_updates=1000),
    lstm=dict(dropout=0.2),
)


@dataclass(frozen=True)
class LabelsRecipe:
    """A recipe that trains fairseq's models on a task (``papers/steps/labels.py``).

    Attributes:
        summary: one line for the list of recipes.
        small: changes to ``SMALL``, a setting for a CPU, the default.
        full: changes to ``FULL``, the papers' setting.
        curriculum_option: the name of the option whose values ``--curriculum`` gives; empty if the task has none.
    """

    summary: str
    small: Mapping[str, Any]
    full: Mapping[str, Any]
    curriculum_option: str = ""


@dataclass(frozen=True)
class TrackingRecipe:
    """A recipe of ``state-tracking`` (``papers/steps/tracking.py``).

    Attributes:
        summary: one line for the list of recipes.
        small: options of ``state-tracking train`` for a CPU, the default.
        full: options for a GPU.
    """

    summary: str
    small: Mapping[str, Any]
    full: Mapping[str, Any]
