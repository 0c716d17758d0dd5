"""Programs whose variables the model has to track (v3 §7.4). The only labels are the values that they print.

Statements are

    x = 5 ;              once per variable, before all other statements with that variable
    x ++ ;   x -- ;
    print x ;            the label of x is its value
    if x < y : z ++ ;    comparing, with < or >, two variables, or a variable and a number

drawn one after the other from those that are possible. Values stay between 1 and ``highest``.
"""

from typing import Dict, List

from fb_fairseq.synthetic_tasks.seeded_random import SeededRandom
from fb_fairseq.synthetic_tasks.sequence import NO_LABEL, LabelledSequence

NAMES = "xyzuvw"
KINDS = ("initialise", "change", "print", "condition")


def algorithmic(rng: SeededRandom, variables: int = 3, statements: int = 100, highest: int = 10) -> LabelledSequence:
    """A program.

    Args:
        variables: number of variables, at most ``len(NAMES)``.
        highest: largest value of a variable, at least 2.
    """
    program = RandomProgram(rng, NAMES[:variables], highest)
    inputs: List[str] = []
    labels: List[str] = []
    for _ in range(statements):
        statement = program.next_statement()
        inputs += statement
        if statement[0] == "print":
            labels += [NO_LABEL, str(program.values[statement[1]]), NO_LABEL]
        else:
            labels += [NO_LABEL] * len(statement)
    return LabelledSequence(inputs, labels)


class RandomProgram:
    """Draws statements and executes them.

    Attributes:
        values: the current value of each variable that has been initialised.
    """

    def __init__(self, rng: SeededRandom, names: str, highest: int):
        self.rng = rng
        self.names = names
        self.highest = highest
        self.values: Dict[str, int] = {}

    def next_statement(self) -> List[str]:
        """The symbols of a random statement, which has been executed."""
        kind = self.rng.choice(KINDS)
        while not self._is_possible(kind):
            kind = self.rng.choice(KINDS)
        if kind == "initialise":
            return self._initialise()
        if kind == "print":
            return ["print", self._any_variable(), ";"]
        if kind == "change":
            return self._change()
        return self._condition()

    def _is_possible(self, kind: str) -> bool:
        return len(self.values) < len(self.names) if kind == "initialise" else bool(self.values)

    def _any_variable(self) -> str:
        return self.rng.choice(sorted(self.values))

    def _initialise(self) -> List[str]:
        name = self.rng.choice([name for name in self.names if name not in self.values])
        self.values[name] = self.rng.randint(1, self.highest)
        return [name, "=", str(self.values[name]), ";"]

    def _change(self, executed: bool = True) -> List[str]:
        """``x ++ ;`` or ``x -- ;``. If it is executed, only a sign that keeps the value in its range is drawn."""
        name = self._any_variable()
        steps = {"++": 1, "--": -1}
        if executed:
            steps = {sign: step for sign, step in steps.items() if 1 <= self.values[name] + step <= self.highest}
        sign = self.rng.choice(tuple(steps))
        if executed:
            self.values[name] += steps[sign]
        return [name, sign, ";"]

    def _condition(self) -> List[str]:
        left = self._any_variable()
        others = [name for name in sorted(self.values) if name != left]
        if others and self.rng.randint(0, 1):
            right = self.rng.choice(others)
            right_value = self.values[right]
        else:
            right_value = self.rng.randint(1, self.highest)
            right = str(right_value)
        sign = self.rng.choice("<>")
        left_value = self.values[left]
        holds = left_value < right_value if sign == "<" else left_value > right_value
        return ["if", left, sign, right, ":", *self._change(executed=holds)]
