"""Water maze: remember the way to a goal by the names of cells, which change with each episode (v3 §7.3)."""

import numpy as np

from fb_fairseq.papers.rl.checks import check_range
from fb_fairseq.papers.rl.envs.base import DIRECTIONS, GREEN, LARGEST_GRID, LIGHT_GREY, RED, BatchedEnv


class WaterMaze(BatchedEnv):
    """A square without walls inside. Reaching the goal is rewarded with 1, and the agent is moved to another random
    cell. The goal and the names of the cells are fixed during an episode. The agent sees the names of its own cell and
    of the goal, and whether the goal is among the 3 x 3 cells around it.

    Args:
        num_envs: how many are played at once.
        size: cells of a side.
        limit: steps of an episode.
    """

    action_names = ("up", "right", "down", "left")
    state_arrays = ("steps", "names", "position", "goal")

    def __init__(self, num_envs: int, size: int = 15, limit: int = 200):
        super().__init__(num_envs)
        check_range("size", size, 2, LARGEST_GRID)
        check_range("limit", limit, 1)
        self.size, self.limit = size, limit
        self.observation_sizes = (size * size, size * size, 2)
        self.names = np.zeros((num_envs, size * size), np.int64)
        self.position = np.zeros((num_envs, 2), np.int64)
        self.goal = np.zeros((num_envs, 2), np.int64)

    def reset(self, indices: np.ndarray) -> None:
        self.steps[indices] = 0
        names = np.broadcast_to(np.arange(self.size**2), (len(indices), self.size**2))
        self.names[indices] = self.rng.permuted(names, axis=1)
        self.goal[indices] = self.rng.integers(self.size, size=(len(indices), 2))
        self._teleport(indices)

    def _teleport(self, indices: np.ndarray) -> None:
        """Move the agents to random cells other than the goal."""
        goal = self.goal[indices] @ [self.size, 1]
        cell = (goal + self.rng.integers(1, self.size**2, size=len(indices))) % self.size**2
        self.position[indices] = np.stack([cell // self.size, cell % self.size], 1)

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.steps += 1
        self.position[:] = np.clip(self.position + DIRECTIONS[actions], 0, self.size - 1)
        found = (self.position == self.goal).all(1)
        self._teleport(np.flatnonzero(found))
        return found.astype(np.float32), self.steps >= self.limit

    def observe(self) -> np.ndarray:
        """See ``BatchedEnv``. The names of the agent's cell and of the goal, and whether the goal is near."""
        envs = np.arange(self.num_envs)
        own, goal = (self.names[envs, cell @ [self.size, 1]] for cell in (self.position, self.goal))
        near = (abs(self.position - self.goal) <= 1).all(1)
        return np.stack([own, goal, near.astype(np.int64)], 1)

    def render_image(self, index: int) -> np.ndarray:
        """See ``BatchedEnv``. The agent is red, the goal green."""
        image = np.full((self.size, self.size, 3), LIGHT_GREY, np.uint8)
        image[tuple(self.goal[index])] = GREEN
        image[tuple(self.position[index])] = RED
        return image
