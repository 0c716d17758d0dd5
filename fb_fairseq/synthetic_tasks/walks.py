"""Random walks on a grid: the inputs are an agent's actions; the label of an action is the cell that it leads to."""

from typing import List, Sequence

from fb_fairseq.synthetic_tasks.seeded_random import SeededRandom
from fb_fairseq.synthetic_tasks.sequence import LabelledSequence

ACTIONS = ("forward", "left", "right")  # of the random walk: a step ahead, or a quarter turn
HEADINGS = ((-1, 0), (0, 1), (1, 0), (0, -1))  # changes of (row, column): up, right, down, left, so clockwise

MOVES = {"up": (-1, 0), "down": (1, 0), "west": (0, -1), "east": (0, 1)}  # of the blocked random walk, as above
MAZE = ("ABC", "DEF", "GHI")
BLOCKS = ("C", "G")  # our choice: v1 shows the blocked cells only in a figure


def simulate_walk(actions: Sequence[str], size: int) -> List[str]:
    """Names ``row,column`` of the cells after each action (v3 §7.1).

    The agent starts in the upper left corner, heading right. A step out of the grid is ignored.

    Args:
        size: number of rows, and of columns.
    """
    row, column, heading, cells = 0, 0, 1, []
    for action in actions:
        if action == "forward":
            down, right = HEADINGS[heading]
            if 0 <= row + down < size and 0 <= column + right < size:
                row, column = row + down, column + right
        else:
            heading = (heading + (1 if action == "right" else -1)) % len(HEADINGS)
        cells.append(f"{row},{column}")
    return cells


def simulate_blocked_walk(moves: Sequence[str], blocks: Sequence[str] = BLOCKS) -> List[str]:
    """Names A to I of the cells after each move through the 3 x 3 ``MAZE`` (v1 B.1).

    The agent starts in the middle, at E. The maze is a torus: an agent that leaves on one side enters on the other. A
    move into a blocked cell is ignored.
    """
    row, column, cells = 1, 1, []
    for move in moves:
        down, right = MOVES[move]
        next_row, next_column = (row + down) % 3, (column + right) % 3
        if MAZE[next_row][next_column] not in blocks:
            row, column = next_row, next_column
        cells.append(MAZE[row][column])
    return cells


def random_walk(rng: SeededRandom, size: int = 8, steps: int = 100) -> LabelledSequence:
    """A walk of random ``ACTIONS`` on a grid of ``size`` x ``size`` cells."""
    actions = [rng.choice(ACTIONS) for _ in range(steps)]
    return LabelledSequence(actions, simulate_walk(actions, size))


def blocked_random_walk(rng: SeededRandom, steps: int = 100) -> LabelledSequence:
    """A walk of random ``MOVES`` through the ``MAZE``."""
    moves = [rng.choice(tuple(MOVES)) for _ in range(steps)]
    return LabelledSequence(moves, simulate_blocked_walk(moves))
