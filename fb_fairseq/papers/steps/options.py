"""The options of recipes, and their types. Lists are words between spaces, without duplicates."""

import argparse
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any

from fb_fairseq.command_line import whole_number
from fb_fairseq.errors import UserError

WORD = re.compile(r"[A-Za-z0-9_-]+")


def word_list(text: str) -> list[str]:
    """Words, each once."""
    words = text.split()
    if not words:
        raise argparse.ArgumentTypeError("needs a value")
    if not all(map(WORD.fullmatch, words)):
        raise argparse.ArgumentTypeError(f"{text}: use only letters, digits, - and _, and spaces between words")
    return list(dict.fromkeys(words))


def learning_rate(text: str) -> float:
    """A decimal number above 0."""
    with suppress(ValueError):
        if 0 < float(text) < inf:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text}: give a number above 0, such as 0.002")


def several(kind: Callable[[str], Any]) -> Callable[[str], list]:
    """A list of such numbers, each once."""
    return lambda text: list(dict.fromkeys(map(kind, text.split() or [text])))


# By name with underscores: the type (None: the option has no value), and the help.
Options = Mapping[str, tuple[Callable[[str], Any] | None, str]]
OPTIONS: Options = {
    "models": (word_list, "models, or agents, each a run"),
    "layers": (several(whole_number), "numbers of layers, of the decoder, each a run"),
    "spans": (several(whole_number), "attention spans in steps, each a run"),
    "lrs": (several(learning_rate), "learning rates, each a run; of a model's, the best one on validation data counts"),
    "seeds": (several(whole_number), "seeds, each a run"),
    "lr": (learning_rate, "learning rate; fine-tuning has a tenth of it"),
    "updates": (whole_number, "of training"),
    "finetune_updates": (partial(whole_number, lowest=0), "of fine-tuning; 0: none"),
    "update_freq": (whole_number, "parts of an update, one after the other, to save memory (default: 1)"),
    "valid_streams": (whole_number, "streams in validation"),
    "test_streams": (whole_number, "streams in the evaluation; few of them leave more context to each token"),
}
SHORTER = {"seeds": "--seed", "spans": "--span", "models": "--agents"}  # other names


def known(names: str) -> Options:
    """Some options of the table. ``names``: theirs, between spaces."""
    return {name: OPTIONS[name] for name in names.split()}


def check_models(given: Iterable[str], names: Iterable[str], fits: Callable[[str], Any] = lambda name: False) -> None:
    """Stop unless all models have one of the names, or fit."""
    for name in given:
        if name not in names and not fits(name):
            raise UserError(f"--models/--agents {name}: unknown; choose from {', '.join(names)}")
