"""The command lines of ``fb-fairseq``: options as dataclass fields, help texts, and mistakes in one line."""

import argparse
import dataclasses
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fb_fairseq.errors import STATUS, debugging, explain, flag, single_line
from fb_fairseq.interruption import Interrupted

LARGEST_SEED = 2**63 - 1  # of torch's generators
INTERRUPTED_STATUS = 130  # as shells report Ctrl-C


def option(
    default: Any, help: str, choices: Collection[str] | None = None, former: Mapping[str, str] | None = None
) -> Any:
    """A field of a configuration dataclass, which becomes a command-line option.

    Args:
        default: the value if the option is not given.
        help: the text that ``--help`` shows.
        choices: the allowed values, or a table of them, which may grow. Kept in the field's metadata for the code that
            validates the option; None: any value of its type. (fairseq's command line does not look at them: it
            restricts only options whose type is a ``ChoiceEnum``.)
        former: names that values had in earlier versions, and their names of today. Checkpoints may have them.
    """
    metadata = {"help": help}
    if choices is not None:
        metadata["choices"] = choices if isinstance(choices, Mapping) else tuple(choices)
    if former is not None:
        metadata["former"] = former
    return dataclasses.field(default=default, metadata=metadata)


def whole_number(text: str, lowest: int = 1) -> int:
    """The type of options that are numbers, ``lowest`` or more."""
    if not text.isascii() or not text.isdecimal() or not lowest <= int(text) < 10**9:
        raise argparse.ArgumentTypeError(f"{text}: give a number, {lowest} or more, with at most nine digits")
    return int(text)


def seed(text: str) -> int:
    """The type of options that are seeds."""
    if not text.isascii() or not text.isdecimal() or int(text) > LARGEST_SEED:
        raise argparse.ArgumentTypeError(f"{text}: give a number from 0 to {LARGEST_SEED}")
    return int(text)


def add_overwrite(parser: argparse.ArgumentParser) -> None:
    """Add ``--overwrite``."""
    parser.add_argument("--overwrite", action="store_true", help="also replace files that this command has not written")


def add_cpu(parser: argparse.ArgumentParser) -> None:
    """Add ``--cpu``."""
    parser.add_argument("--cpu", action="store_true", help="run on the CPU (default: a GPU if there is one)")


class CommandParser(argparse.ArgumentParser):
    """Parses the options of ``fb-fairseq <command>``; without a command, those of a script.

    The help text shows the description as it is. A mistake on the command line prints one line, without the usage.
    """

    def __init__(self, command: str | None = None, **kwargs):
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        if command is not None:
            kwargs["prog"] = f"fb-fairseq {command}"
        super().__init__(**kwargs)

    def check_least(self, args: argparse.Namespace, **least: float) -> None:
        """Refuse numbers that are smaller than these, by the options' Python names. Options that are not given, None,
        are left out.
        """
        for name, lowest in least.items():
            value = getattr(args, name)
            if value is not None and not value >= lowest:  # (NaN is neither less nor more)
                self.error(f"{flag(name)} {value}: must be {lowest} or more")

    def error(self, message: str) -> None:
        """Print the message and exit with status 2."""
        self.exit(STATUS, f"{self.prog}: error: {single_line(message)}\n")

    @contextmanager
    def one_line_errors(self) -> Iterator[None]:
        """Report errors that ``explain`` knows in one line; with ``FB_FAIRSEQ_DEBUG=1`` with their traceback."""
        try:
            yield
        except Interrupted as error:
            sys.stderr.write(f"{self.prog}: {error}\n")
            sys.exit(error.status)
        except KeyboardInterrupt:
            sys.stderr.write(f"{self.prog}: interrupted\n")
            sys.exit(INTERRUPTED_STATUS)
        except Exception as error:
            line = explain(error)
            if line is None or debugging():
                raise
            self.error(line)


def converted(argv: list[str], name: str, convert: Callable[[str], str]) -> list[str]:
    """The arguments with other values of the option ``name``.

    Args:
        argv: the arguments, with ``NAME VALUE`` or ``NAME=VALUE``.
        name: such as ``--path``.
        convert: the new value of a given one.
    """
    words = []
    for before, word in zip(["", *argv], argv):
        if before == name:
            word = convert(word)
        elif word.startswith(f"{name}="):
            word = f"{name}={convert(word.removeprefix(f'{name}='))}"
        words.append(word)
    return words
