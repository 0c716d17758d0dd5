"""Maze navigation: find, and remember, objects of eight colours in a maze of which little is seen (v3 §4.2.2, §7.2)."""

import numpy as np

from fb_fairseq.rl.envs.base import STEPS, Outcome, World, check_size

EMPTY, WALL, FIRST_COLOUR = 0, 1, 2  # values of a cell that is seen
COLOURS = 8
PALETTE = np.array(
    [
        [235, 235, 235],
        [70, 70, 70],
        [31, 119, 180],
        [255, 127, 14],
        [44, 160, 44],
        [214, 39, 40],
        [148, 103, 189],
        [140, 86, 75],
        [227, 119, 194],
        [188, 189, 34],
    ],
    np.uint8,
)


def kruskal_maze(rng: np.random.Generator, size: int) -> np.ndarray:
    """A maze [size, size] of walls (1) and ways (0) without dead ends.

    Cells of even row and column are rooms; Kruskal's algorithm takes away walls between rooms that are not connected
    yet, in a random order. Then, as long as there is a dead end, one of the walls around it is taken away.
    """
    maze = np.ones((size, size), np.int64)
    maze[::2, ::2] = 0
    rooms = list(range(size * size))  # of each cell the room that stands for those connected to it

    def find(room: int) -> int:
        while rooms[room] != room:
            rooms[room] = room = rooms[rooms[room]]
        return room

    walls = [(r, c) for r in range(size) for c in range(size) if (r + c) % 2]
    for i in rng.permutation(len(walls)):
        row, column = walls[i]
        down = row % 2  # between the rooms above and below, or left and right
        first = find((row - down) * size + column - (1 - down))
        second = find((row + down) * size + column + (1 - down))
        if first != second:
            rooms[first] = second
            maze[row, column] = 0
    while True:
        ends = dead_ends(maze)
        if not len(ends):
            return maze
        row, column = ends[rng.integers(len(ends))]
        around = [(row + r, column + c) for r, c in STEPS if 0 <= row + r < size and 0 <= column + c < size]
        closed = [cell for cell in around if maze[cell]]
        maze[closed[rng.integers(len(closed))]] = 0


def dead_ends(maze: np.ndarray) -> np.ndarray:
    """Cells [n, 2] that are free and have one free neighbour, or none."""
    free = np.pad(maze == 0, 1)
    neighbours = sum(np.roll(free, shift, axis) for shift in (1, -1) for axis in (0, 1))
    return np.argwhere((free & (neighbours < 2))[1:-1, 1:-1])


class Maze(World):
    """Eight objects of different colours lie in a maze. At the one of the target colour: +1, and another target.

    The agent sees the 3 x 3 cells around it, turned so that it looks up, and the target colour.
    """

    oriented = True
    actions = ("forward", "turn left", "turn right")
    observation = (FIRST_COLOUR + COLOURS,) * 9 + (COLOURS,)
    arrays = ("steps", "cells", "position", "heading", "target")

    def __init__(self, episodes: int, size: int = 9, limit: int = 200):
        super().__init__(episodes)
        check_size("--size", size, 5)
        check_size("--limit", limit, 1)
        if size % 2 == 0:
            raise ValueError(f"--size {size}: give an odd number, rooms and the walls between them")
        self.size, self.limit = size, limit
        # With the wall around.
        self.cells = np.ones((episodes, size + 2, size + 2), np.int64)
        self.position = np.zeros((episodes, 2), np.int64)
        self.heading = np.zeros(episodes, np.int64)
        self.target = np.zeros(episodes, np.int64)

    def start(self, which: np.ndarray) -> None:
        for episode in which:
            maze = kruskal_maze(self.rng, self.size)
            places = self.rng.permutation(np.argwhere(maze == 0))
            maze[tuple(places[:COLOURS].T)] = FIRST_COLOUR + np.arange(COLOURS)
            self.cells[episode, 1:-1, 1:-1] = maze
            self.position[episode] = places[COLOURS] + 1
        self.steps[which] = 0
        self.heading[which] = self.rng.integers(4, size=len(which)) if self.oriented else 0
        self.target[which] = self.rng.integers(COLOURS, size=len(which))

    def move(self, actions: np.ndarray) -> Outcome:
        self.steps += 1
        if self.oriented:
            step = STEPS[self.heading] * (actions == 0)[:, None]
            self.heading[:] = (self.heading + (actions == 2) - (actions == 1)) % 4
        else:
            step = STEPS[actions]
        episodes = np.arange(self.episodes)
        there = self.position + step
        free = self.cells[episodes, there[:, 0], there[:, 1]] != WALL
        self.position[free] = there[free]
        here = self.cells[episodes, self.position[:, 0], self.position[:, 1]]
        found = here == FIRST_COLOUR + self.target
        # Another one than before.
        self.target[found] = (self.target[found] + self.rng.integers(1, COLOURS, size=found.sum())) % COLOURS
        return Outcome(found.astype(np.float32), np.zeros_like(found), self.steps >= self.limit)

    def observe(self) -> np.ndarray:
        rows = self.position[:, 0, None, None] + np.arange(-1, 2)[:, None]
        columns = self.position[:, 1, None, None] + np.arange(-1, 2)
        seen = self.cells[np.arange(self.episodes)[:, None, None], rows, columns]
        for heading in range(1, 4):
            turned = self.heading == heading
            seen[turned] = np.rot90(seen[turned], heading, axes=(1, 2))
        return np.concatenate([seen.reshape(self.episodes, 9), self.target[:, None]], 1)

    def image(self, episode: int) -> np.ndarray:
        """The last row is the target colour."""
        image = PALETTE[self.cells[episode]]
        row, column = self.position[episode]
        image[row, column] = 0
        if self.oriented:  # the agent is black, the cell that it looks at darker
            ahead = tuple(self.position[episode] + STEPS[self.heading[episode]])
            image[ahead] = image[ahead] * 0.7
        target = np.broadcast_to(PALETTE[FIRST_COLOUR + self.target[episode]], (1, self.size + 2, 3))
        return np.concatenate([image, target])

    def text(self, episode: int) -> str:
        symbols = np.array([".", "#", *(str(colour) for colour in range(COLOURS))])[self.cells[episode]]
        symbols[tuple(self.position[episode])] = "^>v<"[self.heading[episode]] if self.oriented else "@"
        return "\n".join(["".join(row) for row in symbols] + [f"target {self.target[episode]}"])


class MazeEasy(Maze):
    """Without orientation: four moves, and what is seen is not turned (v3 §7.2)."""

    oriented = False
    actions = ("up", "right", "down", "left")
