"""The tasks by name, with the sizes of their sequences and data sets."""

from typing import Callable, Dict, NamedTuple

from fb_fairseq.synthetic_tasks.algorithmic import NAMES, algorithmic
from fb_fairseq.synthetic_tasks.copying import copy, counting, reverse
from fb_fairseq.synthetic_tasks.sequence import LabelledSequence
from fb_fairseq.synthetic_tasks.walks import blocked_random_walk, random_walk


class Size(NamedTuple):
    """A size of a task's sequences, which is an option of the command line.

    Attributes:
        default: the papers' value.
        help: help text of the option.
        lowest: smallest valid value.
        highest: largest valid value.
        test_name: name of an option that overrides the size in the test split; empty if there is no such option.
    """

    default: int
    help: str
    lowest: int = 1
    highest: int = 1_000_000
    test_name: str = ""


class Splits(NamedTuple):
    """Number of sequences in each split."""

    train: int
    valid: int
    test: int


class Task(NamedTuple):
    """A task.

    Attributes:
        help: help text of the task.
        generate: returns one sequence, given a ``SeededRandom`` and the sizes as keyword arguments.
        sizes: the sizes of a sequence by name.
        sequences: the papers' number of sequences.
        disjoint_splits: whether a sequence may occur in one split only.
    """

    help: str
    generate: Callable[..., LabelledSequence]
    sizes: Dict[str, Size]
    sequences: Splits
    disjoint_splits: bool = True


STEPS = Size(100, "number of actions in a sequence")
LENGTH = Size(40, "number of digits in a sequence", test_name="test_length")

TASKS = {
    "copy": Task(
        "copy a sequence of digits",
        copy,
        {"length": LENGTH},
        Splits(100_000, 1_000, 1_000),
    ),
    "reverse": Task(
        "reverse a sequence of digits",
        reverse,
        {"length": LENGTH},
        Splits(100_000, 1_000, 1_000),
    ),
    "counting": Task(
        "write as many B's as there were A's",
        counting,
        {"longest": Size(50, "largest number of A's in a sequence")},
        Splits(100_000, 1_000, 1_000),
        disjoint_splits=False,  # there are only ``longest`` different sequences
    ),
    "random_walk": Task(
        "track an agent that walks and turns on a square grid",
        random_walk,
        {"size": Size(8, "number of rows, and of columns, of the grid", lowest=2), "steps": STEPS},
        Splits(10_000, 1_000, 1_000),
    ),
    "blocked_random_walk": Task(
        "track an agent on a torus of 3 x 3 cells, two of which are blocked",
        blocked_random_walk,
        {"steps": STEPS},
        Splits(10_000, 1_000, 10_000),
    ),
    "algorithmic": Task(
        "predict what a program of assignments, increments and conditions prints",
        algorithmic,
        {
            "variables": Size(3, "number of variables in a program", highest=len(NAMES)),
            "statements": Size(100, "number of statements in a program"),
            "highest": Size(10, "largest value of a variable; the smallest is 1", lowest=2),
        },
        Splits(10_000, 1_000, 1_000),
    ),
}
