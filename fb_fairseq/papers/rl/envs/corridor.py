"""Corridor: the agent sees a colour at the start and must remember it until the end (v3 §4.1.1, Figure 3)."""

import numpy as np

from fb_fairseq.papers.rl.checks import check_range
from fb_fairseq.papers.rl.envs.base import BLUE, GREEN, LIGHT_GREY, RED, BatchedEnv

HALLWAY, DOORS = 2, 3  # observations on the way and at the end; 0 and 1 are the colour of the object at the start
STEP_LIMIT_FACTOR = 3  # the step limit of an episode, as a multiple of the steps needed


class Corridor(BatchedEnv):
    """``length`` steps forward lead from a coloured object to two doors, one of each colour. Going through the door of
    the object's colour is rewarded with 1, through the other with 0. There is nothing to see on the way, and the
    actions for the doors have no effect there. The step limit is three times the number of steps needed. With
    ``shortest``, the length of each corridor is drawn, so that agents learn to remember from short ones first.
    """

    observation_sizes = (4,)
    action_names = ("forward", "blue door", "green door")
    state_arrays = ("steps", "colour", "position", "end")

    def __init__(self, num_envs: int, length: int = 50, shortest: int | None = None):
        super().__init__(num_envs)
        check_range("length", length, 1)
        self.length = length
        self.shortest = length if shortest is None else shortest
        check_range("shortest", self.shortest, 1, length)
        self.end = np.full(num_envs, length)
        self.colour = np.zeros(num_envs, np.int64)
        self.position = np.zeros(num_envs, np.int64)

    def reset(self, indices: np.ndarray) -> None:
        self.steps[indices] = self.position[indices] = 0
        self.colour[indices] = self.rng.integers(2, size=len(indices))
        self.end[indices] = self.rng.integers(self.shortest, self.length + 1, size=len(indices))

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.steps += 1
        through = (self.position == self.end) & (actions > 0)
        rewards = (through & (actions - 1 == self.colour)).astype(np.float32)
        self.position[:] = np.minimum(self.position + (actions == 0), self.end)
        return rewards, through | (self.steps >= STEP_LIMIT_FACTOR * (self.end + 1))

    def observe(self) -> np.ndarray:
        """See ``BatchedEnv``. One component: the object's colour at the start, then the hallway, then the doors."""
        seen = np.where(self.position == self.end, DOORS, HALLWAY)
        return np.where(self.position == 0, self.colour, seen)[:, None]

    def render_image(self, index: int) -> np.ndarray:
        """See ``BatchedEnv``. The agent is red."""
        end = self.end[index]
        image = np.full((3, self.length + 2, 3), LIGHT_GREY, np.uint8)
        image[0, 0] = (BLUE, GREEN)[self.colour[index]]
        image[0, end], image[2, end] = BLUE, GREEN
        image[1, self.position[index]] = RED
        return image
