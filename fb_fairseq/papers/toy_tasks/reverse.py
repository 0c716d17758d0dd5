"""Reversing a sequence of digits: as ``copy``, but the output is in reverse order."""

from dataclasses import replace

from fb_fairseq.papers.toy_tasks import copy
from fb_fairseq.papers.toy_tasks.common import LabelledSequence, SeededRandom, with_output


def reverse(rng: SeededRandom, length: int = 40) -> LabelledSequence:
    """``length`` digits, to be written in reverse order."""
    given = [rng.choice(copy.DIGITS) for _ in range(length)]
    return with_output(given, given[::-1])


TASK = copy.TASK._replace(help="reverse a sequence of digits", generate=reverse)
RECIPE = replace(
    copy.RECIPE,
    summary="reverse a sequence; test sequences are ten times as long (v1 §4.1, v3 §4.1); small: 8 digits everywhere, "
    "span 4",
    small=dict(sequences=copy.RECIPE.small["sequences"], span=4),
)
