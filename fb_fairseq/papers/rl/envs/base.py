"""The interface of the environments. Shapes: B environments, O components of an observation."""

from typing import NamedTuple

import numpy as np

# (row, column) offsets of the directions up, right, down, left: clockwise, so that a right turn adds 1.
DIRECTIONS = np.array([[-1, 0], [0, 1], [1, 0], [0, -1]])

# Colours of rendered images.
LIGHT_GREY = 235
RED, GREEN, BLUE = (200, 40, 40), (60, 170, 60), (60, 90, 220)


class StepResult(NamedTuple):
    """Result of a step in B environments."""

    rewards: np.ndarray  # [B], float32
    terminated: np.ndarray  # [B], whether the episode reached its end
    truncated: np.ndarray  # [B], whether the episode reached its step limit


class BatchedEnv:
    """B environments that run in parallel, each in an episode of its own."""

    observation_sizes: tuple[int, ...]  # number of possible values of each component of an observation
    action_names: tuple[str, ...]
    state_arrays: tuple[str, ...] = ("steps",)  # attributes with a row per environment; their names are in checkpoints

    def __init__(self, num_envs: int):
        self.num_envs = num_envs
        self.steps = np.zeros(num_envs, np.int64)  # since the start of each episode
        self.rng = np.random.default_rng()

    def reset(self, indices: np.ndarray) -> None:
        """Start new episodes in the environments with these indices."""
        raise NotImplementedError

    def step(self, actions: np.ndarray) -> StepResult:
        """Take one action [B] in each environment."""
        raise NotImplementedError

    def observe(self) -> np.ndarray:
        """The current observations [B, O]."""
        raise NotImplementedError

    def render_image(self, index: int) -> np.ndarray:
        """Draw one environment, one pixel per cell: [rows, columns, 3] of uint8."""
        raise NotImplementedError

    def render_text(self, index: int) -> str:
        """Draw one environment as text."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, object]:
        """The state of the episodes and of the random generator, as plain values and arrays."""
        return {"rng": self.rng.bit_generator.state, **{name: getattr(self, name).copy() for name in self.state_arrays}}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Restore a state of ``state_dict``."""
        self.rng.bit_generator.state = state["rng"]
        for name in self.state_arrays:
            getattr(self, name)[...] = state[name]
