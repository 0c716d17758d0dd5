"""The command lines of recipes."""

import argparse
import inspect
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from fb_fairseq.command_line import CommandParser, replace_in_output
from fb_fairseq.errors import UserError

WORD = re.compile(r"[A-Za-z0-9_-]+")
RATE = re.compile(r"(?=[0.]*[1-9])\d*\.?\d+(e-?\d+)?")


# Types of argparse. Lists are words between spaces, without duplicates.


def word_list(text: str) -> list[str]:
    """Words."""
    words = text.split()
    if not words:
        raise argparse.ArgumentTypeError("needs a value")
    if not all(map(WORD.fullmatch, words)):
        raise argparse.ArgumentTypeError(f"{text}: use only letters, digits, - and _, and spaces between words")
    return list(dict.fromkeys(words))


def whole_number(text: str) -> int:
    """A number, 1 or more."""
    if not re.fullmatch("[1-9][0-9]{0,8}", text):
        raise argparse.ArgumentTypeError(f"{text}: give a number, 1 or more, with at most nine digits")
    return int(text)


def number_list(text: str) -> list[int]:
    """Numbers."""
    return list(dict.fromkeys(map(whole_number, word_list(text))))


def learning_rate(text: str) -> float:
    """A decimal number above 0."""
    if not RATE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text}: give a number above 0, such as 0.002")
    return float(text)


def rate_list(text: str) -> list[float]:
    """Decimal numbers above 0."""
    return list(dict.fromkeys(map(learning_rate, text.split() or [text])))


def name_among(names: Sequence[str]) -> Callable[[str], str]:
    """One of the names."""

    def parse(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(f"{text}: unknown; choose from {', '.join(names)}")
        return text

    return parse


def names_among(names: Sequence[str]) -> Callable[[str], list[str]]:
    """Words, all of which are among the names."""
    return lambda text: list(map(name_among(names), word_list(text)))


class RecipeParser(CommandParser):
    """Parses the command line of a recipe: options, at most one DATA (``data`` says what it is), and after ``--``
    others for the command ``extra``. Both may be empty."""

    def __init__(self, name: str, data: str = "", extra: str = "", **kwargs: Any):
        kwargs.setdefault("usage", f"%(prog)s {'[DATA] ' if data else ''}[options]{' [-- OPTIONS]' if extra else ''}")
        after = [f"DATA: {data}"] if data else []
        after += [f"Options after -- go to {extra}."] if extra else []
        super().__init__(f"recipe {name}", allow_abbrev=False, epilog="\n".join(after), **kwargs)
        self.data, self.extra = data, extra
        self.set_defaults(small=None)
        self.add_argument("--print", action="store_true", help="print the commands without running them")

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """The options, with ``data`` (None if there is none) and ``extra``, a list of words."""
        argv = list(argv)
        split = argv.index("--") if "--" in argv else len(argv)
        args, others = self.parse_known_args(argv[:split])
        args.extra, args.data = argv[split + 1 :], None
        help_ = f"python -m fb_fairseq {self.prog.split(' fb_fairseq ')[-1]} --help lists the options"
        for word in others:
            if word.startswith("-"):
                if os.path.lexists(word):
                    raise UserError(f"{word}: looks like an option; write ./{word} for the file or folder")
                raise UserError(f"{word}: unknown option; {help_}")
            if not self.data:
                raise UserError(f"{word}: unexpected argument, this recipe needs no data; {help_}")
            if args.data is not None:
                raise UserError(f"{word}: only one DATA is allowed; {help_}")
            args.data = word
        if args.extra and not self.extra:
            raise UserError(f"--: this recipe takes no further options; {help_}")
        return args

    def error(self, message: str) -> NoReturn:
        """Raise the message as a ``UserError`` that begins with the option."""
        message = re.sub(r"^argument (?:[^:]*/)?(--[\w-]+): (expected one argument)", r"\1 needs a value", message)
        message = re.sub(r"^argument (?:[^:]*/)?(--[\w-]+):", r"\1", message)
        raise UserError(message)

    def add_numbers(self, **helps: str) -> None:
        """Add options that take a number, 1 or more."""
        for name, text in helps.items():
            self.add_argument(f"--{name.replace('_', '-')}", type=whole_number, metavar="N", help=text)

    def add_seeds(self) -> None:
        """Add ``--seeds`` and ``--seed``."""
        self.add_argument("--seeds", type=number_list, metavar='"N …"', help="seeds, each a run (default: 1)")
        self.add_argument("--seed", type=whole_number, metavar="N", help="one seed")


def seeds_of(args: argparse.Namespace, default: Sequence[int] = (1,)) -> list[int]:
    """The seeds that a command line asks for."""
    if args.seed and args.seeds:
        raise UserError("--seed, --seeds: give one of them")
    return args.seeds or ([args.seed] if args.seed else list(default))


def output_folder(out: str | None, default: str, root: str) -> str:
    """The absolute path of the output folder; by default in ROOT/runs."""
    out = os.path.join(root, "runs", default) if out is None else os.path.abspath(out)
    if ":" in out:
        raise UserError(f'--out {out}: fairseq splits paths at ":"; choose a folder without it')
    if "${" in out:
        raise UserError(f"--out {out}: fairseq expands ${{…}}; choose a folder without it")
    return out


def run_main(main: Callable) -> None:
    """Run a module that draws a figure, ``python -m MODULE OUT …``: call ``main`` with the words of the command line.
    Its parameters are the arguments, their types are converted."""
    module = main.__globals__
    parser = CommandParser(prog=f"python -m {module['__spec__'].name}", description=module["__doc__"])
    parameters = inspect.signature(main).parameters.values()
    for parameter in parameters:
        several = parameter.kind is parameter.VAR_POSITIONAL
        parser.add_argument(
            parameter.name, type=parameter.annotation, nargs="+" if several else None, metavar=parameter.name.upper()
        )
    given = vars(parser.parse_args())
    replace_in_output()
    with parser.one_line_errors():
        words = [given[each.name] if each.kind is each.VAR_POSITIONAL else [given[each.name]] for each in parameters]
        main(*(word for group in words for word in group))
