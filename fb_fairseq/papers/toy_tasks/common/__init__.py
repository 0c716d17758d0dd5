"""The parts of a task's file: a generator of sequences, options, and a recipe."""

import argparse
import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from fb_fairseq.errors import UserError, flag

SPLITS = ("train", "valid", "test")
NO_LABEL = "_"  # label of a symbol that is not evaluated; must equal fb_fairseq.streams.fairseq.labels.IGNORED


class LabelledSequence(NamedTuple):
    """A sequence of input symbols, and one label for each of them."""

    inputs: list[str]
    labels: list[str]


def with_output(given: Sequence[str], output: Sequence[str]) -> LabelledSequence:
    """The sequence that asks for ``output`` after ``given``."""
    return LabelledSequence([*given, "=", *output], [NO_LABEL] * len(given) + [*output, "end"])


T = TypeVar("T")


class SeededRandom:
    """A random number generator for one sequence, of the data set's seed and what identifies the sequence: task, split,
    index. Uses only ``random.Random.random()``, the one method whose output Python guarantees not to change between
    versions."""

    def __init__(self, seed: int, *key):
        self._random = random.Random(zlib.crc32(repr((seed, *key)).encode())).random

    def fraction(self) -> float:
        """A uniform number from 0 to 1, which is excluded."""
        return self._random()

    def randint(self, low: int, high: int) -> int:
        """A uniform integer from ``low`` to ``high``, both included."""
        return low + int(self._random() * (high - low + 1))

    def choice(self, items: Sequence[T]) -> T:
        """A uniformly chosen item."""
        return items[self.randint(0, len(items) - 1)]


@dataclass(frozen=True)
class Option:
    """An option of a task on the command line."""

    default: Any  # the papers' value; False: the option is a switch, which has no value
    help: str
    choices: tuple[str, ...] = ()  # the known values; empty: the task checks the value
    metavar: str = "NAME"
    test_name = training_name = test_lowest = ""  # see ``Size``

    def names(self, name: str) -> list[str]:
        """The option ``name``, and those that set it for one split."""
        return [each for each in (name, self.test_name, self.training_name, self.test_lowest) if each]

    def add(self, parser: argparse.ArgumentParser, name: str) -> None:
        """Add the option to a parser."""
        if self.default is False:
            parser.add_argument(flag(name), action="store_true", help=f"{self.help} (default: off)")
            return
        known = f": {', '.join(self.choices)}" if self.choices else ""
        text, kind = f"{self.help}{known} (default: %(default)s)", type(self.default)
        parser.add_argument(flag(name), type=kind, default=self.default, metavar=self.metavar, help=text)

    def check(self, name: str, value: Any) -> None:
        """Raise a ``UserError`` for a wrong value of the option ``name``."""
        if self.choices and value not in self.choices:
            raise UserError(f"{flag(name)} {value}: unknown; choose from {', '.join(self.choices)}")


@dataclass(frozen=True)
class Size(Option):
    """A size of a task's sequences."""

    metavar: str = "N"
    lowest: int = 1
    highest: int = 1_000_000
    test_name: str = ""  # of an option that overrides the size in the test split; empty if there is none
    training_name: str = ""  # of one with which sizes in training vary, from its value to the size; empty: none
    # The same for the test split, up to its size.
    test_lowest = property(lambda self: f"test_{self.training_name}" if self.test_name and self.training_name else "")

    def add(self, parser: argparse.ArgumentParser, name: str) -> None:
        super().add(parser, name)
        size, test_size = flag(name), flag(self.test_name)
        texts = {
            self.test_name: f"{self.help} of the test split (default: as {size})",
            self.training_name: f"training sequences have N to {size} (default: all have {size})",
            self.test_lowest: f"test sequences have N to {test_size} (default: all have {test_size})",
        }
        for other, text in texts.items():
            if other:
                parser.add_argument(flag(other), type=int, metavar="N", help=text)

    def check(self, name: str, value: int) -> None:
        if not self.lowest <= value <= self.highest:
            raise UserError(f"{flag(name)} {value}: give a number from {self.lowest} to {self.highest}")


class Growth(NamedTuple):
    """How the sequences of a task grow in ``state-tracking``."""

    smallest: int  # the size at the start of training
    symbols: Callable[[dict[str, Any]], Sequence[str]]  # all inputs, given the task's options
    labels: Callable[[dict[str, Any]], Sequence[str]]  # all labels
    size: str = "length"  # the option of the task that grows
    steps_each: int = 1  # number of steps in a sequence, as a multiple of the size
    # Whether every step has a label, so that sequences of one size show the accuracy at all smaller ones.
    by_position: bool = False

    def steps(self, size: int) -> int:
        """Number of steps in a sequence of a size."""
        return self.steps_each * size


class Task(NamedTuple):
    """A task."""

    help: str  # help text of the task
    # Returns one sequence, given a ``SeededRandom`` and the options as keyword arguments.
    generate: Callable[..., LabelledSequence]
    options: dict[str, Option]  # the options by name
    sequences: dict[str, int]  # the papers' number of sequences, by split
    disjoint_splits: bool = True  # whether a sequence may occur in one split only
    # Called with the options as keyword arguments; raises a ``UserError`` if they do not fit together.
    check: Callable[..., None] = lambda **options: None
    growth: Growth | None = None  # how sequences grow in ``state-tracking``; None: the task is not for it


@dataclass(frozen=True)
class Setting:
    """How the models are trained on a task."""

    updates: int  # of training
    span: int  # attention span in steps
    layers: int  # of every model
    streams: int  # in an update, over all processes
    model: Mapping[str, Any]  # options of all models
    attention: Mapping[str, Any]  # options of the Transformer and the Feedback Transformer
    training: Mapping[str, Any]  # options of training
    lstm: Mapping[str, Any]  # what LSTMs have instead
    feedback: Mapping[str, Any] = field(default_factory=dict)  # further options of the Feedback Transformer
    sequences: Mapping[str, Any] = field(default_factory=dict)  # options of ``synthetic-tasks``
    # Whether the learning rate stays constant while accuracy may be on a plateau, and then falls to a tenth; and longer
    # spans of attention grow from 8 steps, as Feedback Transformers otherwise learn late with them.
    decay: bool = False

    def changed(self, **changes: Any) -> "Setting":
        """This setting with other values; those of a mapping are added to it."""
        for name, value in changes.items():
            if isinstance(value, Mapping):
                changes[name] = {**getattr(self, name), **value}
        return replace(self, **changes)

    def schedule(self) -> dict[str, Any]:
        """The options of the learning rate's schedule."""
        if not self.decay:
            return {}
        warmup, decay = self.updates // 20, -(-self.updates // 5)
        hold = self.updates - warmup - decay
        steps = dict(warmup_steps=warmup, hold_steps=hold, decay_steps=decay)
        return dict(lr_scheduler="tri_stage", **steps, final_lr_scale=0.1)


# All models have the same number of layers and the same width. The LSTM has no feed-forward sublayers; the Feedback
# Transformer shares its projections.
SMALL = Setting(  # minutes on a CPU
    updates=1000,
    span=8,
    layers=2,
    streams=64,
    model=dict(decoder_embed_dim=64),
    attention=dict(decoder_ffn_embed_dim=256, decoder_attention_heads=4, decoder_normalize_before=True),
    training=dict(tokens_per_sample=32, lr=0.002, clip_norm=1.0),
    lstm=dict(lr=0.005),
    decay=True,
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
class Labels:
    """A recipe that trains fairseq's models on a task (``papers/steps/labels.py``)."""

    summary: str  # one line for the list of recipes
    small: Mapping[str, Any]  # changes to ``SMALL``, a setting for a CPU, the default
    full: Mapping[str, Any]  # changes to ``FULL``, the papers' setting
    graded: str = ""  # the size that ``--curriculum`` varies; empty if the task has none


@dataclass(frozen=True)
class Tracking:
    """A recipe of ``state-tracking`` (``papers/steps/tracking.py``)."""

    summary: str  # one line for the list of recipes
    small: Mapping[str, Any]  # options of ``state-tracking train`` for a CPU, the default
    full: Mapping[str, Any]  # for a GPU
    rates: Sequence[float] = (0.003,)  # default of ``--lrs``
