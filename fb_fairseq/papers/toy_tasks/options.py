"""The kinds of options that a task has on the command line.

Each has ``add``, which adds the option to a parser, and ``check``, which raises a ``UserError`` for a wrong value.
"""

import argparse
from typing import NamedTuple, Tuple, Union

from fb_fairseq.errors import UserError, flag


class Size(NamedTuple):
    """A size of a task's sequences.

    Attributes:
        default: the papers' value.
        help: help text of the option.
        lowest: smallest valid value.
        highest: largest valid value.
        test_name: name of an option that overrides the size in the test split; empty if there is no such option.
        training_name: name of an option with which sizes in the training split vary: from its value to the size;
            empty if there is no such option.
    """

    default: int
    help: str
    lowest: int = 1
    highest: int = 1_000_000
    test_name: str = ""
    training_name: str = ""

    def add(self, parser: argparse.ArgumentParser, name: str) -> None:
        """Add the option, and those for the test and the training split."""
        text = f"{self.help} (default: %(default)s)"
        parser.add_argument(flag(name), type=int, default=self.default, metavar="N", help=text)
        if self.test_name:
            text = f"{self.help} of the test split (default: as {flag(name)})"
            parser.add_argument(flag(self.test_name), type=int, metavar="N", help=text)
        if self.training_name:
            text = (
                f"training sequences have {flag(self.training_name)} to {flag(name)} (default: all have {flag(name)})"
            )
            parser.add_argument(flag(self.training_name), type=int, metavar="N", help=text)

    def check(self, name: str, value: int) -> None:
        """Check the value of the option ``name``."""
        if not self.lowest <= value <= self.highest:
            raise UserError(f"{flag(name)} {value}: give a number from {self.lowest} to {self.highest}")


class Choice(NamedTuple):
    """One of several readings of the papers.

    Attributes:
        default: one of ``choices``.
        help: help text of the option, without the choices.
        choices: the valid values.
    """

    default: str
    help: str
    choices: Tuple[str, ...]
    test_name = training_name = ""

    def add(self, parser: argparse.ArgumentParser, name: str) -> None:
        """Add the option."""
        text = f"{self.help}: {', '.join(self.choices)} (default: %(default)s)"
        parser.add_argument(flag(name), default=self.default, metavar="NAME", help=text)

    def check(self, name: str, value: str) -> None:
        """Check the value of the option ``name``."""
        if value not in self.choices:
            raise UserError(f"{flag(name)} {value}: unknown; choose from {', '.join(self.choices)}")


class Letters(NamedTuple):
    """A set of letters, in any order.

    Attributes:
        default: the letters as one word.
        help: help text of the option.
        alphabet: the valid letters.
    """

    default: str
    help: str
    alphabet: str
    test_name = training_name = ""

    def add(self, parser: argparse.ArgumentParser, name: str) -> None:
        """Add the option."""
        text = f"{self.help} (default: %(default)s)"
        parser.add_argument(flag(name), default=self.default, metavar="LETTERS", help=text)

    def check(self, name: str, value: str) -> None:
        """Check the value of the option ``name``."""
        if not value or len(set(value)) < len(value) or not set(value) <= set(self.alphabet):
            first, last = self.alphabet[0], self.alphabet[-1]
            raise UserError(f'{flag(name)} "{value}": give one or more of the letters {first} to {last}, each once')


class Switch(NamedTuple):
    """A reading of the papers that is off unless the option is given.

    Attributes:
        help: help text of the option.
    """

    help: str
    default = False
    test_name = training_name = ""

    def add(self, parser: argparse.ArgumentParser, name: str) -> None:
        """Add the option."""
        parser.add_argument(flag(name), action="store_true", help=f"{self.help} (default: off)")

    def check(self, name: str, value: bool) -> None:
        """Any value is valid."""


Option = Union[Size, Choice, Letters, Switch]
