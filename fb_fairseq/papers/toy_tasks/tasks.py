"""The tasks by name, with their options and the sizes of their data sets."""

from typing import Callable, Dict, NamedTuple

from fb_fairseq.papers.toy_tasks.algorithmic import CONDITIONS, MIXES, NAMES, algorithmic
from fb_fairseq.papers.toy_tasks.arithmetic import modular_arithmetic
from fb_fairseq.papers.toy_tasks.copying import copy, counting, reverse
from fb_fairseq.papers.toy_tasks.groups import GROUPS, word_problem
from fb_fairseq.papers.toy_tasks.options import Choice, Letters, Option, Size, Switch
from fb_fairseq.papers.toy_tasks.recall import check_recall, recall
from fb_fairseq.papers.toy_tasks.sequence import LabelledSequence
from fb_fairseq.papers.toy_tasks.walks import BLOCKS, MAZE, blocked_random_walk, check_blocks, random_walk


class Splits(NamedTuple):
    """Number of sequences in each split."""

    train: int
    valid: int
    test: int


def anything_fits(**options) -> None:
    """The ``check`` of tasks whose options fit together in any way."""


class Task(NamedTuple):
    """A task.

    Attributes:
        help: help text of the task.
        generate: returns one sequence, given a ``SeededRandom`` and the options as keyword arguments.
        options: the options by name.
        sequences: the papers' number of sequences.
        disjoint_splits: whether a sequence may occur in one split only.
        check: called with the options as keyword arguments; raises a ``UserError`` if they do not fit together.
    """

    help: str
    generate: Callable[..., LabelledSequence]
    options: Dict[str, Option]
    sequences: Splits
    disjoint_splits: bool = True
    check: Callable[..., None] = anything_fits


STEPS = Size(100, "number of actions in a sequence")
LENGTH = Size(40, "number of digits in a sequence", test_name="test_length", training_name="shortest")

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
        "track an agent on a torus of 3 x 3 cells, some of which are blocked",
        blocked_random_walk,
        {
            "steps": STEPS,
            "blocks": Letters(BLOCKS, "blocked cells, from A in the upper left corner to I", "".join(MAZE)),
            "free_first_move": Switch("the first move of a sequence may enter a blocked cell"),
        },
        Splits(10_000, 1_000, 10_000),
        check=check_blocks,
    ),
    "algorithmic": Task(
        "predict what a program of assignments, increments and conditions prints",
        algorithmic,
        {
            "variables": Size(3, "number of variables in a program", highest=len(NAMES)),
            "statements": Size(100, "number of statements in a program", training_name="shortest"),
            "highest": Size(10, "largest value of a variable; the smallest is 1", lowest=2),
            "mix": Choice("table7", "how likely each kind of statement is", tuple(MIXES)),
            "conditions": Choice("inequality", "what conditions test", CONDITIONS),
            "nested_assignments": Switch("statements after a condition may also initialise a variable"),
        },
        Splits(10_000, 1_000, 1_000),
    ),
    # Not in the Feedback Transformer papers: docs/state-tracking.md.
    "word_problem": Task(
        "give the product so far after each element of a finite group",
        word_problem,
        {
            "group": Choice("A5", "group", GROUPS),
            "length": Size(128, "number of elements in a sequence", test_name="test_length", training_name="shortest"),
        },
        Splits(1_000_000, 1_000, 1_000),
    ),
    "recall": Task(
        "give the value of a key that occurred before (multi-query associative recall)",
        recall,
        {
            "pairs": Size(16, "number of keys with a value", test_name="test_pairs", training_name="fewest"),
            "length": Size(64, "number of symbols in a sequence", test_name="test_length"),
            "symbols": Size(8192, "number of different symbols, half of them keys", lowest=4),
        },
        Splits(100_000, 1_000, 3_000),
        check=check_recall,
    ),
    "modular_arithmetic": Task(
        "evaluate an expression with brackets modulo a number",
        modular_arithmetic,
        {
            "length": Size(
                *(40, "number of symbols in a sequence", 2), test_name="test_length", training_name="shortest"
            ),
            "modulus": Size(5, "values are computed modulo this number", lowest=2, highest=10),
        },
        Splits(100_000, 1_000, 1_000),
    ),
}
