"""A task: how its sequences are generated, and its options."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fb_fairseq.errors import UserError, flag
from fb_fairseq.papers.toy_tasks.common.sequences import LabelledSequence


@dataclass(frozen=True)
class Option:
    """An option of a task on the command line: a size, if it is a whole number; a switch; or a word.

    Attributes:
        default: the papers' value; False for a switch, which has no value.
        help: its help text.
        choices: the known words; empty: the task checks the word.
        lowest: smallest value of a size.
        highest: largest value of a size.
        test_name: an option that overrides the size in the test split; empty: none.
        training_name: an option with which sizes in training vary, from its value to the size; empty: none.
    """

    default: Any
    help: str
    choices: tuple[str, ...] = ()
    lowest: int = 1
    highest: int = 1_000_000
    test_name: str = ""
    training_name: str = ""

    @property
    def test_training_name(self) -> str:
        """The name of the option like ``training_name`` for the test split; empty if there is none."""
        return f"test_{self.training_name}" if self.test_name and self.training_name else ""

    def names(self, name: str) -> list[str]:
        """The names of the option ``name``, and of the options that set it for one split."""
        return [name, *filter(None, (self.test_name, self.training_name, self.test_training_name))]

    def help_texts(self, name: str) -> dict[str, str]:
        """The help texts, by name, of the option ``name`` and of the options that set it for one split."""
        known = f": {', '.join(self.choices)}" if self.choices else ""
        found = {name: f"{self.help}{known} (default: %(default)s)"}
        if self.test_name:
            found[self.test_name] = f"{self.help} of the test split (default: as {flag(name)})"
        if self.training_name:
            found[self.training_name] = f"training sequences have N to {flag(name)} (default: all have {flag(name)})"
        if self.test_training_name:
            size = flag(self.test_name)
            found[self.test_training_name] = f"test sequences have N to {size} (default: all have {size})"
        return found

    def add(self, parser: argparse.ArgumentParser, name: str) -> None:
        """Add the option, and those that set it for one split, to a parser."""
        if self.default is False:
            parser.add_argument(flag(name), action="store_true", help=f"{self.help} (default: off)")
            return
        kind = type(self.default)
        for each, text in self.help_texts(name).items():
            default = self.default if each == name else None
            metavar = "N" if kind is int else "NAME"
            parser.add_argument(flag(each), type=kind, default=default, metavar=metavar, help=text)

    def check(self, name: str, value: Any) -> None:
        """Raise a ``UserError`` for a wrong value of the option ``name``."""
        if self.choices and value not in self.choices:
            raise UserError(f"{flag(name)} {value}: unknown; choose from {', '.join(self.choices)}")
        if type(value) is int and not self.lowest <= value <= self.highest:
            raise UserError(f"{flag(name)} {value}: give a number from {self.lowest} to {self.highest}")


class Growth(NamedTuple):
    """How the sequences of a task grow in ``state-tracking``. Its generator must take ``length``, a number of steps.

    Attributes:
        smallest: the size at the start of training.
        symbols: all inputs, given the options of all tasks, by name.
        labels: all labels, given the same.
        size: the option of the task that grows.
        steps_each: number of steps in a sequence, as a multiple of the size.
        by_position: whether every step has a label, so that sequences of one size show the accuracy at all smaller
            ones.
    """

    smallest: int
    symbols: Callable[[dict[str, Any]], Sequence[str]]
    labels: Callable[[dict[str, Any]], Sequence[str]]
    size: str = "length"
    steps_each: int = 1
    by_position: bool = False

    def steps(self, size: int) -> int:
        """Number of steps in a sequence of a size."""
        return self.steps_each * size


class Limits(NamedTuple):
    """The options that limit a value in a split, by name.

    Attributes:
        largest: the largest value; the only one where ``smallest`` is None.
        smallest: the smallest value; None if the value does not vary.
    """

    largest: str
    smallest: str | None = None


class Task(NamedTuple):
    """A task.

    Attributes:
        help: its help text.
        generate: returns one sequence, given a ``SeededRandom`` and the options as keyword arguments.
        options: the options by name.
        sequences: the papers' number of sequences, by split.
        disjoint_splits: whether a sequence may occur in one split only.
        check: called with the options as keyword arguments; raises a ``UserError`` if they do not fit together.
        growth: how sequences grow in ``state-tracking``; None: the task is not for it.
    """

    help: str
    generate: Callable[..., LabelledSequence]
    options: dict[str, Option]
    sequences: dict[str, int]
    disjoint_splits: bool = True
    check: Callable[..., None] = lambda **options: None
    growth: Growth | None = None

    def limits(self, split: str, options: dict[str, Any]) -> dict[str, Limits]:
        """The limits of each of the task's options in a split: in the test split, ``length`` is from ``test_shortest``
        to ``test_length``, if they are given.

        Args:
            split: of the data.
            options: the value of each option by its name; None: it is not given.
        """

        def given(name: str) -> str | None:
            return name if name and options[name] is not None else None

        found = {}
        for name, option in self.options.items():
            if split == "train":
                found[name] = Limits(name, given(option.training_name))
            elif split == "test":
                found[name] = Limits(given(option.test_name) or name, given(option.test_training_name))
            else:
                found[name] = Limits(name)
        return found
