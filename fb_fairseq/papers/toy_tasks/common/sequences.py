"""Sequences, and the random numbers that they are drawn with."""

import random
import zlib
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

SPLITS = ("train", "valid", "test")
NO_LABEL = "_"  # label of a symbol that is not evaluated; must equal fb_fairseq.streams.fairseq.labels.IGNORED


class LabelledSequence(NamedTuple):
    """A sequence.

    Attributes:
        inputs: its symbols.
        labels: one for each of them; ``NO_LABEL`` where there is none.
    """

    inputs: list[str]
    labels: list[str]


def with_output(given: Sequence[str], output: Sequence[str]) -> LabelledSequence:
    """A sequence of given symbols, ``=``, and the output that the model has to produce.

    Args:
        given: the symbols before ``=``, which have no labels.
        output: the labels from ``=`` on, which are inputs too; then comes ``end``.
    """
    return LabelledSequence([*given, "=", *output], [NO_LABEL] * len(given) + [*output, "end"])


T = TypeVar("T")


class SeededRandom:
    """A random number generator for one sequence. Uses only ``random.Random.random()``, the one method whose output
    Python guarantees not to change between versions.

    Args:
        seed: of the data set.
        key: what identifies the sequence: task, split, index.
    """

    def __init__(self, seed: int, *key):
        self._random = random.Random(zlib.crc32(repr((seed, *key)).encode())).random

    def fraction(self) -> float:
        """A uniform number in [0, 1)."""
        return self._random()

    def randint(self, low: int, high: int) -> int:
        """A uniform integer from ``low`` to ``high``, both included."""
        return low + int(self._random() * (high - low + 1))

    def choice(self, items: Sequence[T]) -> T:
        """A uniformly chosen item."""
        return items[self.randint(0, len(items) - 1)]
