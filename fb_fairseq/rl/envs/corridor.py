"""Corridor: a colour is seen at the start, and has to be remembered until the doors at the end (v3 §4.1.1, Figure 3)."""

from typing import Optional

import numpy as np

from fb_fairseq.rl.envs.base import Outcome, World, check_size

COLOURS = ("blue", "green")
HALLWAY, DOORS = 2, 3  # observations; 0 and 1: the object's colour


class Corridor(World):
    """``length`` steps forward lead from the object to the doors. Through the door of the object's colour: +1, the other: 0.

    On the way there is nothing to see, and doors do nothing. Three times as many steps as needed end the episode.

    Args:
        shortest: corridors of all lengths from it to ``length``; None: all are of that length. (Agents learn to remember
            from the short ones first.)
    """

    observation = (4,)
    actions = ("forward", *(f"{colour} door" for colour in COLOURS))
    arrays = ("steps", "colour", "position", "end")

    def __init__(self, episodes: int, length: int = 50, shortest: Optional[int] = None):
        super().__init__(episodes)
        check_size("--length", length, 1)
        self.length, self.shortest = length, length if shortest is None else shortest
        check_size("--shortest", self.shortest, 1)
        if self.shortest > length:
            raise ValueError(f"--shortest {shortest}: give no more than --length {length}")
        self.end = np.full(episodes, length)
        self.colour = np.zeros(episodes, np.int64)
        self.position = np.zeros(episodes, np.int64)

    def start(self, which: np.ndarray) -> None:
        self.steps[which] = self.position[which] = 0
        self.colour[which] = self.rng.integers(2, size=len(which))
        self.end[which] = self.rng.integers(self.shortest, self.length + 1, size=len(which))

    def move(self, actions: np.ndarray) -> Outcome:
        self.steps += 1
        through = (self.position == self.end) & (actions > 0)
        rewards = (through & (actions - 1 == self.colour)).astype(np.float32)
        self.position[:] = np.minimum(self.position + (actions == 0), self.end)
        return Outcome(rewards, through, ~through & (self.steps >= 3 * (self.end + 1)))

    def observe(self) -> np.ndarray:
        seen = np.where(self.position == self.end, DOORS, HALLWAY)
        return np.where(self.position == 0, self.colour, seen)[:, None]

    def image(self, episode: int) -> np.ndarray:
        """All are as wide; a shorter corridor leaves the rest dark."""
        end = self.end[episode]
        image = np.full((3, self.length + 2, 3), 90, np.uint8)
        blue, green = (60, 90, 220), (60, 170, 60)
        image[1, : end + 1] = 235
        image[0, 0] = (blue, green)[self.colour[episode]]
        image[0, end], image[2, end] = blue, green
        image[1, self.position[episode]] = (200, 40, 40)
        return image

    def text(self, episode: int) -> str:
        cells = ["."] * (self.end[episode] + 1)
        cells[self.position[episode]] = "@"
        return f"{COLOURS[self.colour[episode]]} |{''.join(cells)}| doors"
