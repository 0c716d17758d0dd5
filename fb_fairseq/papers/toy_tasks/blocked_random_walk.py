"""A random walk through a maze, some of whose cells are blocked: the label of a move is the cell that it leads to."""

from collections.abc import Sequence

from fb_fairseq.errors import UserError
from fb_fairseq.papers.toy_tasks.common import LabelledSequence, LabelsRecipe, Option, SeededRandom, Task

MOVES = {"up": (-1, 0), "down": (1, 0), "west": (0, -1), "east": (0, 1)}  # rows down, columns right
MAZE = ("ABC", "DEF", "GHI")
BLOCKS = "CG"  # a guess: v1 shows the blocked cells only in a figure


def check_blocks(blocks: str, **others) -> None:
    """Check the cells' names."""
    if not blocks or len(set(blocks)) < len(blocks) or not set(blocks) <= set("".join(MAZE)):
        raise UserError(f'--blocks "{blocks}": give one or more of the letters A to I, each once')


def simulate_blocked_walk(moves: Sequence[str], blocks: Sequence[str] = BLOCKS) -> list[str]:
    """Names A to I of the cells after each move through the 3 x 3 ``MAZE`` (v1 B.1). The agent starts in the middle, at
    E. The maze is a torus: an agent that leaves on one side enters on the other. A move into a blocked cell is ignored,
    "except for the initial step": the agent is placed at E even if E is among the blocks, and cannot return.
    """
    row, column, cells = 1, 1, []
    for move in moves:
        down, right = MOVES[move]
        next_row = (row + down) % 3
        next_column = (column + right) % 3
        if MAZE[next_row][next_column] not in blocks:
            row, column = next_row, next_column
        cells.append(MAZE[row][column])
    return cells


def blocked_random_walk(rng: SeededRandom, steps: int = 100, blocks: str = BLOCKS) -> LabelledSequence:
    """A walk of random ``MOVES`` through the ``MAZE``.

    Args:
        rng: the moves are drawn with it.
        steps: number of moves.
        blocks: names of the blocked cells.
    """
    moves = [rng.choice(tuple(MOVES)) for _ in range(steps)]
    return LabelledSequence(moves, simulate_blocked_walk(moves, blocks))


TASK = Task(
    "track an agent on a torus of 3 x 3 cells, some of which are blocked",
    blocked_random_walk,
    {
        "steps": Option(100, "number of actions in a sequence"),
        "blocks": Option(BLOCKS, "blocked cells, from A in the upper left corner to I"),
    },
    dict(train=10_000, valid=1_000, test=100_000),
    check=check_blocks,
)
RECIPE = LabelsRecipe(
    "the position on a torus of 3 x 3 cells, two of them blocked (v1 §4.1, B.1)",
    small=dict(sequences=dict(train=4000, valid=200, test=500), training=dict(lr=0.001)),
    full=dict(
        sequences=TASK.sequences,
        training=dict(lr=0.0003, clip_norm=1.0),  # v1 Table 9
    ),
)
