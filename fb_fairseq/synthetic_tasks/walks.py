"""Walks on a grid: the inputs are actions, the label of each is the cell where the agent is after it."""

from typing import List, Sequence, Tuple

from fb_fairseq.synthetic_tasks.draw import Draw

Labelled = Tuple[List[str], List[str]]

ACTIONS = ("forward", "left", "right")  # of the random walk: one step, or a quarter turn
MOVES = ("up", "down", "west", "east")  # of the blocked random walk
HEADINGS = ((-1, 0), (0, 1), (1, 0), (0, -1))  # clockwise from the top, in rows and columns
BLOCKS = ("C", "G")  # the paper shows which cells are brown in a figure that its text does not have


def cell_name(row: int, column: int) -> str:
    return f"{row},{column}"


def walk(actions: Sequence[str], size: int) -> List[str]:
    """Cells after each action (v3 §7.1). The agent starts in the upper left corner, heading right; a step out of the grid
    is ignored."""
    row, column, heading, cells = 0, 0, 1, []
    for action in actions:
        if action == "forward":
            down, right = HEADINGS[heading]
            if 0 <= row + down < size and 0 <= column + right < size:
                row, column = row + down, column + right
        else:
            heading = (heading + (1 if action == "right" else -1)) % 4
        cells.append(cell_name(row, column))
    return cells


def blocked_walk(moves: Sequence[str], blocks: Sequence[str] = BLOCKS) -> List[str]:
    """Cells A to I after each move (v1 B.1). The agent starts in the middle, E. The maze repeats itself in all
    directions; a move into a block is ignored."""
    row, column, cells = 1, 1, []
    for move in moves:
        down, right = {"up": (-1, 0), "down": (1, 0), "west": (0, -1), "east": (0, 1)}[move]
        there = (row + down) % 3, (column + right) % 3
        if "ABCDEFGHI"[3 * there[0] + there[1]] not in blocks:
            row, column = there
        cells.append("ABCDEFGHI"[3 * row + column])
    return cells


def random_walk(draw: Draw, size: int = 8, steps: int = 100) -> Labelled:
    actions = [draw.one_of(ACTIONS) for _ in range(steps)]
    return actions, walk(actions, size)


def blocked_random_walk(draw: Draw, steps: int = 100) -> Labelled:
    moves = [draw.one_of(MOVES) for _ in range(steps)]
    return moves, blocked_walk(moves)
