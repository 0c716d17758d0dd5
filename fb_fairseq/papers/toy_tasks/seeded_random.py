"""Random choices that are the same on every machine and with every Python version."""

import random
import zlib
from typing import Sequence, TypeVar

T = TypeVar("T")


class SeededRandom:
    """A random number generator for one sequence.

    Uses only ``random.Random.random()``, the one method whose output Python guarantees not to change between versions.

    Args:
        seed: seed of the whole data set.
        key: what the sequence is identified by (task, split, index); each key has its own stream of numbers.
    """

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
