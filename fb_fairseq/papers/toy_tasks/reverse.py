"""Reversing a sequence of digits: the digits, then ``=``, then the output (see ``with_output``)."""

from fb_fairseq.papers.toy_tasks.common import (
    LabelledSequence,
    Labels,
    SeededRandom,
    Size,
    Splits,
    Task,
    full,
    small,
    with_output,
)

DIGITS = "0123456789"


def reverse(rng: SeededRandom, length: int = 40) -> LabelledSequence:
    """``length`` digits, to be written in reverse order."""
    given = [rng.choice(DIGITS) for _ in range(length)]
    return with_output(given, given[::-1])


TASK = Task(
    "reverse a sequence of digits",
    reverse,
    {"length": Size(40, "number of digits in a sequence", test_name="test_length", training_name="shortest")},
    Splits(100_000, 1_000, 1_000),
)
RECIPE = Labels(
    "reverse a sequence; test sequences are ten times as long (v1 §4.1, v3 §4.1); small: 8 digits everywhere, span 4",
    small=small(sequences=dict(length=8, train=20_000, valid=200, test=500), span=4),
    full=full(sequences=dict(length=40, test_length=400, train=100_000, valid=1000, test=1000), span=1000),
    graded="length",
)
