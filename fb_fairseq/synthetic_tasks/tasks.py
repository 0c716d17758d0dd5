"""The tasks by name, with their sizes."""

from typing import Callable, Dict, NamedTuple, Tuple

from fb_fairseq.synthetic_tasks.algorithmic import NAMES, algorithmic
from fb_fairseq.synthetic_tasks.copying import copy, counting, reverse
from fb_fairseq.synthetic_tasks.walks import blocked_random_walk, random_walk


class Size(NamedTuple):
    """One of a task's sizes.

    test_name: the option for another value in the test split; None: all splits have the same.
    """

    default: int
    help: str
    lowest: int = 1
    highest: int = 1_000_000
    test_name: str = ""


class Task(NamedTuple):
    """``make(draw, **sizes)`` gives a sequence. ``distinct``: none of the training split is in another one."""

    make: Callable
    sizes: Dict[str, Size]
    sequences: Tuple[int, int, int]  # of the papers: train, valid, test
    distinct: bool = True


STEPS = Size(100, "actions of an episode")
LENGTH = Size(40, "digits of a sequence", test_name="test_length")

TASKS = {
    "copy": Task(copy, {"length": LENGTH}, (100_000, 1_000, 1_000)),
    "reverse": Task(reverse, {"length": LENGTH}, (100_000, 1_000, 1_000)),
    "counting": Task(
        counting, {"longest": Size(50, "most A's of a sequence")}, (100_000, 1_000, 1_000), distinct=False
    ),
    "random_walk": Task(
        random_walk, {"size": Size(8, "rows and columns of the grid", lowest=2), "steps": STEPS}, (10_000, 1_000, 1_000)
    ),
    "blocked_random_walk": Task(blocked_random_walk, {"steps": STEPS}, (10_000, 1_000, 10_000)),
    "algorithmic": Task(
        algorithmic,
        {
            "variables": Size(3, "variables of a program", highest=len(NAMES)),
            "statements": Size(100, "statements of a program"),
            "highest": Size(10, "values go from 1 to this", lowest=2),
        },
        (10_000, 1_000, 1_000),
    ),
}
