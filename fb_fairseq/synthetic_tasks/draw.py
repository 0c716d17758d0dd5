"""Random choices that are the same on every machine and Python: ``random.Random.random`` alone is promised to be."""

import random
import zlib
from typing import Sequence, TypeVar

T = TypeVar("T")


class Draw:
    """A source of choices. Its name (task, split, number of the sequence) and the seed decide all of them."""

    def __init__(self, seed: int, *name):
        self._random = random.Random(zlib.crc32(repr((seed, *name)).encode())).random

    def number(self, low: int, high: int) -> int:
        """From ``low`` to ``high``, both included."""
        return low + int(self._random() * (high - low + 1))

    def one_of(self, things: Sequence[T]) -> T:
        return things[self.number(0, len(things) - 1)]
