"""Copy, reverse, and counting: after ``=`` the output follows, each symbol of which is the label of the one before it.

The models read the right output so far. So a sequence is right exactly if they would write it themselves.
"""

from typing import List, Sequence

from fb_fairseq.synthetic_tasks.draw import Draw
from fb_fairseq.synthetic_tasks.walks import Labelled

DIGITS = "0123456789"


def with_output(given: Sequence[str], output: Sequence[str]) -> Labelled:
    inputs = [*given, "=", *output]
    labels: List[str] = ["_"] * len(given) + [*output, "end"]
    return inputs, labels


def copy(draw: Draw, length: int = 40) -> Labelled:
    given = [draw.one_of(DIGITS) for _ in range(length)]
    return with_output(given, given)


def reverse(draw: Draw, length: int = 40) -> Labelled:
    given = [draw.one_of(DIGITS) for _ in range(length)]
    return with_output(given, given[::-1])


def counting(draw: Draw, longest: int = 50) -> Labelled:
    n = draw.number(1, longest)
    return with_output(["A"] * n, ["B"] * n)
