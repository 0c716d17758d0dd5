"""Random walks on a grid: the inputs are an agent's actions; the label of an action is the cell that it leads to."""

from typing import List, Sequence

from fb_fairseq.errors import UserError
from fb_fairseq.papers.toy_tasks.seeded_random import SeededRandom
from fb_fairseq.papers.toy_tasks.sequence import LabelledSequence

ACTIONS = ("forward", "left", "right")  # of the random walk: a step ahead, or a quarter turn
HEADINGS = ((-1, 0), (0, 1), (1, 0), (0, -1))  # changes of (row, column): up, right, down, left, so clockwise

MOVES = {"up": (-1, 0), "down": (1, 0), "west": (0, -1), "east": (0, 1)}  # of the blocked random walk, as above
MAZE = ("ABC", "DEF", "GHI")
BESIDE_START = "BDFH"  # the agent starts in the middle
BLOCKS = "CG"  # a guess: v1 shows the blocked cells only in a figure


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


def check_blocks(blocks: str, free_first_move: bool, **others) -> None:
    """Check that the agent can leave its start, and that ``free_first_move`` makes a difference.

    Raises:
        UserError: one of them is not the case.
    """
    if set(BESIDE_START) <= set(blocks):
        raise UserError(f"--blocks {blocks}: the agent could not leave its start, E; leave B, D, F or H free")
    if free_first_move and not set(BESIDE_START) & set(blocks):
        raise UserError(
            "--free-first-move: has no effect; add one of the start's neighbours, B, D, F and H, to --blocks"
        )


def simulate_blocked_walk(
    moves: Sequence[str], blocks: Sequence[str] = BLOCKS, free_first_move: bool = False
) -> List[str]:
    """Names A to I of the cells after each move through the 3 x 3 ``MAZE`` (v1 B.1).

    The agent starts in the middle, at E. The maze is a torus: an agent that leaves on one side enters on the other. A
    move into a blocked cell is ignored, "except for the initial step". That may mean two things: the agent is placed at
    E even if E is among the blocks, and cannot return; or its first move is not stopped by a block.

    Args:
        blocks: names of the blocked cells.
        free_first_move: whether the first move may enter a blocked cell.
    """
    row, column, cells = 1, 1, []
    for i, move in enumerate(moves):
        down, right = MOVES[move]
        next_row, next_column = (row + down) % 3, (column + right) % 3
        if MAZE[next_row][next_column] not in blocks or (free_first_move and i == 0):
            row, column = next_row, next_column
        cells.append(MAZE[row][column])
    return cells


def random_walk(rng: SeededRandom, size: int = 8, steps: int = 100) -> LabelledSequence:
    """A walk of random ``ACTIONS`` on a grid of ``size`` x ``size`` cells."""
    actions = [rng.choice(ACTIONS) for _ in range(steps)]
    return LabelledSequence(actions, simulate_walk(actions, size))


def blocked_random_walk(
    rng: SeededRandom, steps: int = 100, blocks: str = BLOCKS, free_first_move: bool = False
) -> LabelledSequence:
    """A walk of random ``MOVES`` through the ``MAZE``."""
    moves = [rng.choice(tuple(MOVES)) for _ in range(steps)]
    return LabelledSequence(moves, simulate_blocked_walk(moves, blocks, free_first_move))
