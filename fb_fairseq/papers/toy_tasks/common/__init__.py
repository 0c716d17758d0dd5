"""What a file of a task is made of: a generator of sequences, options, and a recipe."""

import argparse
import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from fb_fairseq.errors import UserError, flag

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

    default: Any  # the papers' value
    help: str
    metavar = "NAME"
    test_name = training_name = known = ""

    def add(self, parser: argparse.ArgumentParser, name: str) -> None:
        """Add the option to a parser."""
        text, kind = f"{self.help}{self.known} (default: %(default)s)", type(self.default)
        parser.add_argument(flag(name), type=kind, default=self.default, metavar=self.metavar, help=text)

    def check(self, name: str, value: Any) -> None:
        """Raise a ``UserError`` for a wrong value of the option ``name``."""


@dataclass(frozen=True)
class Size(Option):
    """A size of a task's sequences."""

    lowest: int = 1
    highest: int = 1_000_000
    test_name: str = ""  # of an option that overrides the size in the test split; empty if there is none
    training_name: str = ""  # of one with which sizes in training vary, from its value to the size; empty: none
    metavar = "N"

    def add(self, parser: argparse.ArgumentParser, name: str) -> None:
        super().add(parser, name)
        lowest = flag(self.training_name)
        for other, text in (
            (self.test_name, f"{self.help} of the test split (default: as {flag(name)})"),
            (self.training_name, f"training sequences have {lowest} to {flag(name)} (default: all have {flag(name)})"),
        ):
            if other:
                parser.add_argument(flag(other), type=int, metavar="N", help=text)

    def check(self, name: str, value: int) -> None:
        if not self.lowest <= value <= self.highest:
            raise UserError(f"{flag(name)} {value}: give a number from {self.lowest} to {self.highest}")


@dataclass(frozen=True)
class Choice(Option):
    """One of several readings of the papers."""

    choices: tuple[str, ...] = ()
    known = property(lambda self: f": {', '.join(self.choices)}")

    def check(self, name: str, value: str) -> None:
        if value not in self.choices:
            raise UserError(f"{flag(name)} {value}: unknown; choose from {', '.join(self.choices)}")


@dataclass(frozen=True)
class Letters(Option):
    """A set of letters of an alphabet, in any order, as one word."""

    alphabet: str = ""
    metavar = "LETTERS"

    def check(self, name: str, value: str) -> None:
        if not value or len(set(value)) < len(value) or not set(value) <= set(self.alphabet):
            first, last = self.alphabet[0], self.alphabet[-1]
            raise UserError(f'{flag(name)} "{value}": give one or more of the letters {first} to {last}, each once')


class Switch(Option):
    """A reading of the papers that is off unless the option is given."""

    def add(self, parser: argparse.ArgumentParser, name: str) -> None:
        parser.add_argument(flag(name), action="store_true", help=f"{self.help} (default: off)")


class Growth(NamedTuple):
    """How the sequences of a task grow in ``state-tracking``."""

    size: str  # the option of the task that grows
    smallest: int  # its value at the start of training
    steps: Callable[[int], int]  # number of steps in a sequence of a size
    # The task's other options for a size, given those of the command line.
    options: Callable[[int, dict[str, Any]], dict[str, Any]]
    symbols: Callable[[dict[str, Any]], Sequence[str]]  # all inputs, given the task's options
    labels: Callable[[dict[str, Any]], Sequence[str]]  # all labels
    # Whether every step has a label, so that sequences of one size show the accuracy at all smaller ones.
    by_position: bool = False


def numbers(end: int, start: int = 0) -> list[str]:
    """The numbers from ``start`` to ``end``, which is excluded, as symbols."""
    return list(map(str, range(start, end)))


class Splits(NamedTuple):
    """Number of sequences in each split."""

    train: int
    valid: int
    test: int


def anything_fits(**options) -> None:
    """The ``check`` of tasks whose options fit together in any way."""


class Task(NamedTuple):
    """A task."""

    help: str  # help text of the task
    # Returns one sequence, given a ``SeededRandom`` and the options as keyword arguments.
    generate: Callable[..., LabelledSequence]
    options: dict[str, Option]  # the options by name
    sequences: Splits  # the papers' number of sequences
    disjoint_splits: bool = True  # whether a sequence may occur in one split only
    # Called with the options as keyword arguments; raises a ``UserError`` if they do not fit together.
    check: Callable[..., None] = anything_fits
    growth: Growth | None = None  # how sequences grow in ``state-tracking``; None: the task is not for it


@dataclass(frozen=True)
class Setting:
    """How the models are trained on a task."""

    source: str  # where the values come from
    sequences: Mapping[str, Any]  # options of ``synthetic-tasks``
    updates: int  # of training
    span: int  # attention span in steps
    layers: int  # of every model
    streams: int  # in an update, over all processes
    model: Mapping[str, Any]  # options of all models
    attention: Mapping[str, Any]  # options of the Transformer and the Feedback Transformer
    training: Mapping[str, Any]  # options of training
    feedback: Mapping[str, Any] = field(default_factory=dict)  # further options of the Feedback Transformer
    lstm: Mapping[str, Any] = field(default_factory=dict)  # what LSTMs have instead
    # Whether the learning rate stays constant while accuracy may be on a plateau, and then falls to a tenth; and longer
    # spans of attention grow from 8 steps, as Feedback Transformers otherwise learn late with them.
    decay: bool = False

    def schedule(self) -> dict[str, Any]:
        """The options of the learning rate's schedule."""
        if not self.decay:
            return {}
        warmup, decay = self.updates // 20, -(-self.updates // 5)
        return dict(
            **dict(lr_scheduler="tri_stage", warmup_steps=warmup, hold_steps=self.updates - warmup - decay),
            **dict(decay_steps=decay, final_lr_scale=0.1),
        )


# All models have the same number of layers and the same width. The LSTM has no feed-forward sublayers; the Feedback
# Transformer shares its projections.
SMALL = Setting(
    source="this project: minutes on a CPU",
    **dict(sequences={}, updates=1000, span=8, layers=2, streams=64, model=dict(decoder_embed_dim=64)),
    attention=dict(decoder_ffn_embed_dim=256, decoder_attention_heads=4, decoder_normalize_before=True),
    **dict(training=dict(tokens_per_sample=32, lr=0.002, clip_norm=1.0), lstm=dict(lr=0.005), decay=True),
)
FULL = Setting(
    source="v3 Table 9, random walk, which gives no number of updates",
    **dict(sequences={}, updates=10_000, span=100, layers=4, streams=512, model=dict(decoder_embed_dim=256)),
    attention=dict(
        **dict(decoder_ffn_embed_dim=1024, decoder_attention_heads=4, decoder_normalize_before=True),
        **dict(attention_dropout=0.2, activation_dropout=0.2),
    ),
    feedback=dict(memory_projections="per-layer"),  # 3.2M parameters each
    training=dict(tokens_per_sample=64, lr=0.0001, clip_norm=0.1, lr_scheduler="fixed", warmup_updates=1000),
    lstm=dict(dropout=0.2),
)


def small(**changes: Any) -> Setting:
    """The small setting with changes."""
    return replace(SMALL, **changes)


def full(**changes: Any) -> Setting:
    """The papers' setting with changes."""
    return replace(FULL, **changes)


@dataclass(frozen=True)
class Labels:
    """A recipe that trains fairseq's models on a task (``papers/runner/labels.py``)."""

    summary: str  # one line for the list of recipes
    small: Setting  # a setting for a CPU, the default
    full: Setting  # the papers' setting
    graded: str = ""  # the size that ``--curriculum`` varies; empty if the task has none
    kind: str = "fb_fairseq.papers.runner.labels:LabelledTask"


@dataclass(frozen=True)
class Tracking:
    """A recipe of ``state-tracking`` (``papers/experiments/state_tracking.py``)."""

    summary: str  # one line for the list of recipes
    small: Mapping[str, Any]  # options of ``state-tracking train`` for a CPU, the default
    full: Mapping[str, Any]  # for a GPU
    rates: Sequence[float] = (0.003,)  # default of ``--lrs``
    kind: str = "fb_fairseq.papers.experiments.state_tracking:state_tracking"
