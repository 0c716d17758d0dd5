"""Maze navigation: find objects of eight colours in a maze, and remember where they are (v3 §4.2.2, §7.2)."""

import numpy as np

from fb_fairseq.errors import UserError
from fb_fairseq.papers.rl.checks import check_range
from fb_fairseq.papers.rl.envs.base import DIRECTIONS, LARGEST_GRID, BatchedEnv

EMPTY, WALL, FIRST_COLOUR = 0, 1, 2  # values of a cell; the object of colour c is FIRST_COLOUR + c
COLOURS = 8
# Of rendered cells: empty, wall, the colours.
PALETTE = np.frombuffer(
    bytes.fromhex("ebebeb 464646 1f77b4 ff7f0e 2ca02c d62728 9467bd 8c564b e377c2 bcbd22"), np.uint8
).reshape(-1, 3)


def generate_maze(rng: np.random.Generator, size: int) -> np.ndarray:
    """A random maze without dead ends, [size, size] of WALL and EMPTY. Cells of even row and column are rooms. A random
    spanning tree connects them; then walls are removed until there is no dead end.

    Args:
        rng: draws it.
        size: an odd number, 3 or more: rooms are at all edges.
    """
    maze = _random_tree(rng, size)
    while True:
        ends = _dead_ends(maze)
        if not len(ends):
            return maze
        row, column = ends[rng.integers(len(ends))]
        around = [(row + r, column + c) for r, c in DIRECTIONS if 0 <= row + r < size and 0 <= column + c < size]
        closed = [cell for cell in around if maze[cell] == WALL]
        maze[closed[rng.integers(len(closed))]] = EMPTY


def _random_tree(rng: np.random.Generator, size: int) -> np.ndarray:
    """A random spanning tree of the rooms, by Kruskal's algorithm: walls are visited in random order and removed if the
    rooms on both sides are not connected yet.
    """
    maze = np.full((size, size), WALL, np.int64)
    maze[::2, ::2] = EMPTY
    connected = np.arange(size * size).reshape(size, size)  # rooms with one number are
    walls = [(r, c) for r in range(size) for c in range(size) if (r + c) % 2]
    for i in rng.permutation(len(walls)):
        row, column = walls[i]
        down = row % 2  # 1: the wall is between the rooms above and below, 0: between those to the left and right
        first = connected[row - down, column - 1 + down]
        second = connected[row + down, column + 1 - down]
        if first != second:
            connected[connected == second] = first
            maze[row, column] = EMPTY
    return maze


def _dead_ends(maze: np.ndarray) -> np.ndarray:
    """Positions [n, 2] of the empty cells with fewer than two empty neighbours."""
    empty = np.pad(maze == EMPTY, 1)
    neighbours = sum(np.roll(empty, shift, axis) for shift in (1, -1) for axis in (0, 1))
    return np.argwhere((empty & (neighbours < 2))[1:-1, 1:-1])


class Maze(BatchedEnv):
    """A maze with eight objects of different colours. Reaching the object of the target colour is rewarded with 1, and
    another target colour is drawn. The agent sees the 3 x 3 cells around it, rotated so that it faces up, and the
    target colour.

    Args:
        num_envs: how many are played at once.
        size: cells of a side.
        limit: steps of an episode.
    """

    oriented = True
    action_names = ("forward", "turn left", "turn right")
    observation_sizes = (FIRST_COLOUR + COLOURS,) * 9 + (COLOURS,)
    state_arrays = ("steps", "cells", "position", "heading", "target")

    def __init__(self, num_envs: int, size: int = 9, limit: int = 200):
        super().__init__(num_envs)
        check_range("size", size, 5, LARGEST_GRID)
        check_range("limit", limit, 1)
        if size % 2 == 0:
            raise UserError(f"--size {size}: give an odd number (walls lie between the rooms)")
        self.size, self.limit = size, limit
        self.cells = np.full((num_envs, size + 2, size + 2), WALL, np.int64)  # with a wall around the maze
        self.position = np.zeros((num_envs, 2), np.int64)
        self.heading = np.zeros(num_envs, np.int64)  # index in DIRECTIONS
        self.target = np.zeros(num_envs, np.int64)

    def reset(self, indices: np.ndarray) -> None:
        for index in indices:
            maze = generate_maze(self.rng, self.size)
            places = self.rng.permutation(np.argwhere(maze == EMPTY))
            maze[tuple(places[:COLOURS].T)] = FIRST_COLOUR + np.arange(COLOURS)
            self.cells[index, 1:-1, 1:-1] = maze
            self.position[index] = places[COLOURS] + 1
        self.steps[indices] = 0
        self.heading[indices] = self.rng.integers(4, size=len(indices)) if self.oriented else 0
        self.target[indices] = self.rng.integers(COLOURS, size=len(indices))

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.steps += 1
        if self.oriented:
            offset = DIRECTIONS[self.heading] * (actions == 0)[:, None]
            self.heading[:] = (self.heading + (actions == 2) - (actions == 1)) % 4
        else:
            offset = DIRECTIONS[actions]
        envs = np.arange(self.num_envs)
        ahead = self.position + offset
        free = self.cells[envs, ahead[:, 0], ahead[:, 1]] != WALL
        self.position[free] = ahead[free]
        here = self.cells[envs, self.position[:, 0], self.position[:, 1]]
        found = here == FIRST_COLOUR + self.target
        # Adding 1 to COLOURS - 1, modulo COLOURS, never gives the same target again.
        self.target[found] = (self.target[found] + self.rng.integers(1, COLOURS, size=found.sum())) % COLOURS
        return found.astype(np.float32), self.steps >= self.limit

    def observe(self) -> np.ndarray:
        """See ``BatchedEnv``. The 3 x 3 cells around the agent, row by row, and the target colour."""
        rows = self.position[:, 0, None, None] + np.arange(-1, 2)[:, None]
        columns = self.position[:, 1, None, None] + np.arange(-1, 2)
        seen = self.cells[np.arange(self.num_envs)[:, None, None], rows, columns]
        for heading in range(1, 4):
            facing = self.heading == heading
            seen[facing] = np.rot90(seen[facing], heading, axes=(1, 2))
        return np.concatenate([seen.reshape(self.num_envs, 9), self.target[:, None]], 1)

    def render_image(self, index: int) -> np.ndarray:
        """See ``BatchedEnv``. The agent is black; the last row has the target colour."""
        image = PALETTE[self.cells[index]]
        row, column = self.position[index]
        image[row, column] = 0
        target = np.broadcast_to(PALETTE[FIRST_COLOUR + self.target[index]], (1, self.size + 2, 3))
        return np.concatenate([image, target])


class MazeEasy(Maze):
    """A maze where the agent has no orientation: four moves, and what it sees is not rotated (v3 §7.2)."""

    oriented = False
    action_names = ("up", "right", "down", "left")
