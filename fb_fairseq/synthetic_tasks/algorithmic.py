"""Programs whose variables have to be kept track of (v3 §7.4); the values that they print are the only labels.

Statements are drawn one after the other among those that are possible: ``x = 5 ;`` (once a variable, before all others
of it), ``x ++ ;``, ``x -- ;``, ``print x ;`` (the label stands at the name), ``if x < y : z ++ ;``, ``if x > 4 : …``.
Values stay in 1 … ``highest``.
"""

from typing import Dict, List

from fb_fairseq.synthetic_tasks.draw import Draw
from fb_fairseq.synthetic_tasks.walks import Labelled

NAMES = "xyzuvw"
KINDS = ("initialise", "change", "print", "condition")


def algorithmic(draw: Draw, variables: int = 3, statements: int = 100, highest: int = 10) -> Labelled:
    names, values = NAMES[:variables], {}
    inputs: List[str] = []
    labels: List[str] = []
    for _ in range(statements):
        symbols = statement(draw, names, values, highest)
        printed = symbols[0] == "print"
        inputs += symbols
        labels += ["_", str(values[symbols[1]]), "_"] if printed else ["_"] * len(symbols)
    return inputs, labels


def statement(draw: Draw, names: str, values: Dict[str, int], highest: int) -> List[str]:
    """A statement that can be executed, which it is."""
    while True:
        kind = draw.one_of(KINDS)
        new = [name for name in names if name not in values]
        if kind == "initialise" and new:
            name = draw.one_of(new)
            values[name] = draw.number(1, highest)
            return [name, "=", str(values[name]), ";"]
        if not values:
            continue
        if kind == "print":
            return ["print", draw.one_of(sorted(values)), ";"]
        if kind == "change":
            return change(draw, values, highest)
        if kind == "condition":
            first = draw.one_of(sorted(values))
            others = [name for name in sorted(values) if name != first]
            compared = draw.one_of(others) if others and draw.number(0, 1) else str(draw.number(1, highest))
            sign = draw.one_of("<>")
            second = values.get(compared) or int(compared)
            holds = values[first] < second if sign == "<" else values[first] > second
            return ["if", first, sign, compared, ":", *change(draw, values, highest, holds)]


def change(draw: Draw, values: Dict[str, int], highest: int, executed: bool = True) -> List[str]:
    """``x ++ ;`` or ``x -- ;``; a value at the end of its range can go one way only, should it be executed."""
    name = draw.one_of(sorted(values))
    signs = [sign for sign, step in (("++", 1), ("--", -1)) if not executed or 1 <= values[name] + step <= highest]
    sign = draw.one_of(signs)
    if executed:
        values[name] += 1 if sign == "++" else -1
    return [name, sign, ";"]
