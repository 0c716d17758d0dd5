"""The options of recipes, and their types. Lists are words between spaces, without duplicates."""

import argparse
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fb_fairseq.errors import UserError

WORD = re.compile(r"[A-Za-z0-9_-]+")
RATE = re.compile(r"(?=[0.]*[1-9])\d*\.?\d+(e-?\d+)?")


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


# By name with underscores: the type (None: the option has no value), and the help.
Options = Mapping[str, tuple[Callable[[str], Any] | None, str]]
OPTIONS: Options = {
    "models": (word_list, "models, or agents, each a run"),
    "layers": (number_list, "numbers of layers, of the decoder, each a run"),
    "spans": (number_list, "attention spans in steps, each a run"),
    "lrs": (rate_list, "learning rates, each a run; of a model's, the best one on validation data counts"),
    "seeds": (number_list, "seeds, each a run"),
    "lr": (learning_rate, "learning rate; fine-tuning has a tenth of it"),
    "updates": (whole_number, "of training"),
    "finetune_updates": (lambda text: 0 if text == "0" else whole_number(text), "of fine-tuning; 0: none"),
    "update_freq": (whole_number, "parts of an update, one after the other, to save memory (default: 1)"),
    "valid_streams": (whole_number, "streams in validation"),
    "test_streams": (whole_number, "streams in the evaluation; few of them leave more context to each token"),
}
SHORTER = {"seeds": "--seed", "spans": "--span", "models": "--agents"}  # other names


def known(names: str) -> dict[str, tuple[Callable[[str], Any] | None, str]]:
    """Options of the table."""
    return {name: OPTIONS[name] for name in names.split()}


def check_models(given: Iterable[str], names: Iterable[str], fits: Callable[[str], Any] = lambda name: False) -> None:
    """Stop unless all models have one of the names, or fit."""
    for name in given:
        if name not in names and not fits(name):
            raise UserError(f"--models {name}: unknown; choose from {', '.join(names)}")
