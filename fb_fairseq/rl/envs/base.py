"""What the worlds have in common. Shapes: N episodes, K components of an observation."""

from typing import Dict, NamedTuple, Tuple

import numpy as np

# (row, column) of a step up, right, down, left: clockwise, so that a quarter turn to the right is + 1.
STEPS = np.array([[-1, 0], [0, 1], [1, 0], [0, -1]])


class Outcome(NamedTuple):
    """Of a move: rewards [N], and which episodes came to their end [N], or to the limit of their steps [N]."""

    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


class World:
    """N episodes of a task.

    Attributes:
        observation: how many values each component of an observation has.
        actions: names of the actions.
        arrays: names of what an episode consists of, each an array with a row an episode.
    """

    observation: Tuple[int, ...]
    actions: Tuple[str, ...]
    arrays: Tuple[str, ...] = ("steps",)

    def __init__(self, episodes: int):
        self.episodes = episodes
        self.steps = np.zeros(episodes, np.int64)
        self.rng = np.random.default_rng()

    def start(self, which: np.ndarray) -> None:
        """New episodes in place of these (their numbers)."""
        raise NotImplementedError

    def move(self, actions: np.ndarray) -> Outcome:
        """An action [N] in each episode."""
        raise NotImplementedError

    def observe(self) -> np.ndarray:
        """What the agents see: [N, K]."""
        raise NotImplementedError

    def image(self, episode: int) -> np.ndarray:
        """An episode, a pixel a cell: [rows, columns, 3] of 0 to 255."""
        raise NotImplementedError

    def text(self, episode: int) -> str:
        raise NotImplementedError

    def state(self) -> Dict[str, object]:
        """All that later episodes depend on: plain values and arrays."""
        return {"rng": self.rng.bit_generator.state, **{name: getattr(self, name).copy() for name in self.arrays}}

    def load_state(self, state: Dict[str, object]) -> None:
        self.rng.bit_generator.state = state["rng"]
        for name in self.arrays:
            getattr(self, name)[...] = state[name]


def check_size(name: str, value: int, lowest: int) -> None:
    """
    Raises:
        ValueError: a size is out of range.
    """
    if value < lowest:
        raise ValueError(f"{name} {value}: give {lowest} or more")
