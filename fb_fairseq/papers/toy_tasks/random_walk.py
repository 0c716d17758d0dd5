"""A random walk on a grid: the inputs are an agent's actions; the label of an action is the cell that it leads to."""

from collections.abc import Sequence

from fb_fairseq.papers.toy_tasks.common import LabelledSequence, LabelsRecipe, Option, SeededRandom, Task

ACTIONS = ("forward", "left", "right")  # a step ahead, or a quarter turn
HEADINGS = ((-1, 0), (0, 1), (1, 0), (0, -1))  # changes of (row, column): up, right, down, left, so clockwise


def simulate_walk(actions: Sequence[str], size: int) -> list[str]:
    """Names ``row,column`` of the cells after each action (v3 §7.1). The agent starts in the upper left corner, heading
    right. A step out of the grid is ignored.

    Args:
        actions: forward, left or right.
        size: rows and columns of the grid.
    """
    row, column, heading, cells = 0, 0, 1, []
    for action in actions:
        if action == "forward":
            down, right = HEADINGS[heading]
            if 0 <= row + down < size and 0 <= column + right < size:
                row = row + down
                column = column + right
        else:
            heading = (heading + (1 if action == "right" else -1)) % len(HEADINGS)
        cells.append(f"{row},{column}")
    return cells


def random_walk(rng: SeededRandom, size: int = 8, steps: int = 100) -> LabelledSequence:
    """A walk of random ``ACTIONS`` on a grid of ``size`` x ``size`` cells."""
    actions = [rng.choice(ACTIONS) for _ in range(steps)]
    return LabelledSequence(actions, simulate_walk(actions, size))


TASK = Task(
    "track an agent that walks and turns on a square grid",
    random_walk,
    {
        "size": Option(8, "number of rows, and of columns, of the grid", lowest=2),
        "steps": Option(100, "number of actions in a sequence"),
    },
    dict(train=10_000, valid=1_000, test=1_000),
)
RECIPE = LabelsRecipe(
    "the position on a grid after steps and turns (v3 §4.1.2, §7.1); small: 4 x 4 cells",
    small=dict(sequences=dict(size=4, train=10_000, valid=200, test=500), updates=6000),
    full=dict(sequences=dict(size=8, **TASK.sequences)),
)
