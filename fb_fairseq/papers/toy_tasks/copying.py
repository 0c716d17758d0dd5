"""Copying, reversing and counting: some symbols, then ``=``, then the output that the model has to produce.

This is next-token prediction: the label of ``=``, and of each output symbol, is the symbol that follows it, or ``end``
after the last one. The model reads the correct output so far. So all labels of a sequence are predicted correctly if
and only if greedy decoding would produce that output.
"""

from typing import Sequence

from fb_fairseq.papers.toy_tasks.seeded_random import SeededRandom
from fb_fairseq.papers.toy_tasks.sequence import NO_LABEL, LabelledSequence

DIGITS = "0123456789"


def with_output(given: Sequence[str], output: Sequence[str]) -> LabelledSequence:
    """The sequence that asks for ``output`` after ``given``."""
    return LabelledSequence([*given, "=", *output], [NO_LABEL] * len(given) + [*output, "end"])


def copy(rng: SeededRandom, length: int = 40) -> LabelledSequence:
    """``length`` digits, to be copied."""
    given = [rng.choice(DIGITS) for _ in range(length)]
    return with_output(given, given)


def reverse(rng: SeededRandom, length: int = 40) -> LabelledSequence:
    """``length`` digits, to be written in reverse order."""
    given = [rng.choice(DIGITS) for _ in range(length)]
    return with_output(given, given[::-1])


def counting(rng: SeededRandom, longest: int = 50) -> LabelledSequence:
    """1 to ``longest`` times A, to be followed by the same number of B's."""
    n = rng.randint(1, longest)
    return with_output(["A"] * n, ["B"] * n)
