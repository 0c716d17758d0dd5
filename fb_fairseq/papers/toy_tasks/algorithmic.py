"""Programs whose variables the model has to track (v3 §7.4). The only labels are the values that they print.

Statements are

    x = 5 ;              once per variable, before all other statements with that variable
    x ++ ;   x -- ;
    print x ;            the label of x is its value
    if x < y : z ++ ;    comparing, with < or >, two variables, or a variable and a number

drawn one after the other from those that are possible. Values stay between 1 and ``highest``.

The paper does not say how likely each kind is. Of the 100 statements of its example program (v3 Table 7), 48 are ++ or
--, 27 print, 22 are conditions and 3 initialise. ``mix`` chooses: with "table7", ++ and -- are two kinds, each as
likely as print and conditions, as in the published generator; with "even", they are one kind.

The paper's text has conditions with ==, its example program (v3 Table 7) only < and >, and so have ours. Table 7 also
has an assignment after a condition, ``if z < 5 : y = 7 ;``. It is not executed there, and y is initialised later. That
is how we read "a variable can only be initialized once": with ``nested_assignments``, a condition may be followed
by the initialisation of a variable that has no value yet, which leaves it without one unless the condition holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fb_fairseq.papers.toy_tasks.common import NO_LABEL, LabelledSequence, LabelsRecipe, Option, SeededRandom, Task

NAMES = "xyzuvw"
MIXES = {  # kinds of statements, each as likely
    "table7": ("initialise", "change", "change", "print", "condition"),
    "even": ("initialise", "change", "print", "condition"),
}


def algorithmic(
    rng: SeededRandom,
    *,
    variables: int = 3,
    statements: int = 100,
    highest: int = 10,
    mix: str = "table7",
    nested_assignments: bool = False,
) -> LabelledSequence:
    """A program.

    Args:
        rng: draws the statements.
        variables: their number, 1 to 6.
        statements: their number.
        highest: largest value of a variable, 2 or more; the smallest is 1.
        mix: one of ``MIXES``.
        nested_assignments: whether a condition may be followed by an initialisation.
    """
    program = RandomProgram(rng, NAMES[:variables], highest, MIXES[mix], nested_assignments)
    inputs: list[str] = []
    labels: list[str] = []
    for _ in range(statements):
        statement = program.next_statement()
        inputs += statement
        if statement[0] == "print":
            labels += [NO_LABEL, str(program.values[statement[1]]), NO_LABEL]
        else:
            labels += [NO_LABEL] * len(statement)
    return LabelledSequence(inputs, labels)


@dataclass
class RandomProgram:
    """Draws statements and executes them.

    Attributes:
        rng: draws the statements.
        names: of the variables.
        highest: their largest value.
        kinds: of statements, each as likely.
        nested_assignments: see ``algorithmic``.
        values: of the variables that are initialised.
    """

    rng: SeededRandom
    names: str
    highest: int
    kinds: Sequence[str]
    nested_assignments: bool
    values: dict[str, int] = field(default_factory=dict)

    def next_statement(self) -> list[str]:
        """The symbols of a random statement, which has been executed."""
        possible = False
        while not possible:
            kind = self.rng.choice(self.kinds)
            possible = self._uninitialised() if kind == "initialise" else self.values
        if kind == "initialise":
            return self._initialise()
        if kind == "print":
            return ["print", self._any_variable(), ";"]
        if kind == "change":
            return self._change()
        return self._condition()

    def _any_variable(self) -> str:
        return self.rng.choice(sorted(self.values))

    def _uninitialised(self) -> list[str]:
        return [name for name in self.names if name not in self.values]

    def _initialise(self, executed: bool = True) -> list[str]:
        """``x = 5 ;``, where x has no value yet."""
        name = self.rng.choice(self._uninitialised())
        value = self.rng.randint(1, self.highest)
        if executed:
            self.values[name] = value
        return [name, "=", str(value), ";"]

    def _change(self, executed: bool = True) -> list[str]:
        """``x ++ ;`` or ``x -- ;``. If it is executed, only a sign that keeps the value in its range is drawn."""
        name = self._any_variable()
        steps = {"++": 1, "--": -1}
        if executed:
            steps = {sign: step for sign, step in steps.items() if 1 <= self.values[name] + step <= self.highest}
        sign = self.rng.choice(tuple(steps))
        if executed:
            self.values[name] += steps[sign]
        return [name, sign, ";"]

    def _condition(self) -> list[str]:
        """``if x < y :`` and a statement, which is executed if the condition holds."""
        left = self._any_variable()
        others = [name for name in sorted(self.values) if name != left]
        with_other = others and self.rng.randint(0, 1)
        right = self.rng.choice(others) if with_other else self.rng.randint(1, self.highest)
        sign = self.rng.choice("<>")
        value = self.values.get(right, right)  # a number stands for itself
        holds = self.values[left] < value if sign == "<" else self.values[left] > value
        initialises = self.nested_assignments and self._uninitialised() and self.rng.randint(0, 1)
        nested = self._initialise(executed=holds) if initialises else self._change(executed=holds)
        return ["if", left, sign, str(right), ":", *nested]


TASK = Task(
    "predict what a program of assignments, increments and conditions prints",
    algorithmic,
    {
        "variables": Option(3, "number of variables in a program", highest=len(NAMES)),
        "statements": Option(100, "number of statements in a program", training_name="shortest"),
        "highest": Option(10, "largest value of a variable; the smallest is 1", lowest=2),
        "mix": Option("table7", "how likely each kind of statement is", tuple(MIXES)),
        "nested_assignments": Option(False, "statements after a condition may also initialise a variable"),
    },
    dict(train=10_000, valid=1_000, test=1_000),
)
RECIPE = LabelsRecipe(
    "programs of assignments, increments, conditions and prints (v3 §4.1.2, §7.4); small: shorter, fewer values",
    small=dict(
        sequences=dict(mix="table7", variables=3, statements=15, highest=4, train=40_000, valid=500, test=1000),
        updates=4000,
        span=64,
        streams=256,  # only one in 17 symbols has a label
    ),
    full=dict(  # number of updates and nested assignments: the published program's
        sequences=dict(mix="table7", nested_assignments=True, variables=3, **TASK.sequences),
        updates=50_000,
    ),
    curriculum_option="statements",
)
