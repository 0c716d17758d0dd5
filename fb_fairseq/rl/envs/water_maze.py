"""Water maze: the way to a goal has to be remembered by the names of cells, which change with each episode (v3 §7.3)."""

import numpy as np

from fb_fairseq.rl.envs.base import STEPS, Outcome, World, check_size


class WaterMaze(World):
    """Goal and the cells' names are fixed in an episode. At the goal: +1, and the agent is put anywhere else.

    The agent sees the names of its cell and of the goal, and whether the goal is among the 3 x 3 cells around it.
    """

    actions = ("up", "right", "down", "left")
    arrays = ("steps", "names", "position", "goal")

    def __init__(self, episodes: int, size: int = 15, limit: int = 200):
        super().__init__(episodes)
        check_size("--size", size, 2)
        check_size("--limit", limit, 1)
        self.size, self.limit = size, limit
        self.observation = (size * size, size * size, 2)
        self.names = np.zeros((episodes, size * size), np.int64)
        self.position = np.zeros((episodes, 2), np.int64)
        self.goal = np.zeros((episodes, 2), np.int64)

    def start(self, which: np.ndarray) -> None:
        self.steps[which] = 0
        names = np.broadcast_to(np.arange(self.size**2), (len(which), self.size**2))
        self.names[which] = self.rng.permuted(names, axis=1)
        self.goal[which] = self.rng.integers(self.size, size=(len(which), 2))
        self._teleport(which)

    def _teleport(self, which: np.ndarray) -> None:
        """To any cell but the goal."""
        goal = self.goal[which] @ [self.size, 1]
        cell = (goal + self.rng.integers(1, self.size**2, size=len(which))) % self.size**2
        self.position[which] = np.stack([cell // self.size, cell % self.size], 1)

    def move(self, actions: np.ndarray) -> Outcome:
        self.steps += 1
        self.position[:] = np.clip(self.position + STEPS[actions], 0, self.size - 1)
        found = (self.position == self.goal).all(1)
        self._teleport(np.flatnonzero(found))
        return Outcome(found.astype(np.float32), np.zeros_like(found), self.steps >= self.limit)

    def observe(self) -> np.ndarray:
        episodes = np.arange(self.episodes)
        own, goal = (self.names[episodes, cell @ [self.size, 1]] for cell in (self.position, self.goal))
        near = (abs(self.position - self.goal) <= 1).all(1)
        return np.stack([own, goal, near.astype(np.int64)], 1)

    def image(self, episode: int) -> np.ndarray:
        image = np.full((self.size, self.size, 3), 235, np.uint8)
        row, column = self.position[episode]
        around = np.s_[max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2]
        image[around] = 200
        image[tuple(self.goal[episode])] = (60, 170, 60)
        image[row, column] = (200, 40, 40)
        return image

    def text(self, episode: int) -> str:
        symbols = np.full((self.size, self.size), ".")
        symbols[tuple(self.goal[episode])] = "G"
        symbols[tuple(self.position[episode])] = "@"
        return "\n".join("".join(row) for row in symbols)
