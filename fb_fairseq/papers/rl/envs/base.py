"""The interface of the environments. Shapes: B environments, O components of an observation."""

import numpy as np

# (row, column) offsets of the directions up, right, down, left: clockwise, so that a right turn adds 1.
DIRECTIONS = np.array([[-1, 0], [0, 1], [1, 0], [0, -1]])

LARGEST_GRID = 100  # rows of a maze

# Colours of rendered images.
LIGHT_GREY = 235
RED, GREEN, BLUE = (200, 40, 40), (60, 170, 60), (60, 90, 220)


class BatchedEnv:
    """B environments that run in parallel, each in an episode of its own.

    Args:
        num_envs: their number B.

    Attributes:
        observation_sizes: number of possible values of each component of an observation.
        action_names: what the actions 0, 1, … do.
        state_arrays: names of attributes with a row per environment, as they are in checkpoints.
        steps: number of steps since the start of each episode [B].
        rng: draws what is random.
    """

    observation_sizes: tuple[int, ...]
    action_names: tuple[str, ...]
    state_arrays: tuple[str, ...] = ("steps",)

    def __init__(self, num_envs: int):
        self.num_envs = num_envs
        self.steps = np.zeros(num_envs, np.int64)
        self.rng = np.random.default_rng()

    def reset(self, indices: np.ndarray) -> None:
        """Start new episodes in the environments with these indices."""
        raise NotImplementedError

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Take one action in each environment.

        Args:
            actions: integers [B], from 0 on.

        Returns:
            The rewards [B], float32, and whether each episode has ended [B]: at its end, or at its step limit. The
            environments do not start new ones by themselves.
        """
        raise NotImplementedError

    def observe(self) -> np.ndarray:
        """The current observations [B, O]."""
        raise NotImplementedError

    def render_image(self, index: int) -> np.ndarray:
        """Draw one environment, one pixel per cell: [rows, columns, 3] of uint8."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, object]:
        """The state of the episodes and of the random generator, as plain values and arrays."""
        return {"rng": self.rng.bit_generator.state, **{name: getattr(self, name).copy() for name in self.state_arrays}}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Restore a state of ``state_dict``."""
        self.rng.bit_generator.state = state["rng"]
        for name in self.state_arrays:
            getattr(self, name)[...] = state[name]
