"""The worlds with gymnasium's API: ``gymnasium.make("fb_fairseq/Maze-v0")`` and ``gymnasium.make_vec(…, num_envs=64)``.

Importing this module registers them. A vectorised environment starts the next episode in the step that ends one
(``AutoresetMode.SAME_STEP``); its ``infos`` then have ``final_obs``, a row an environment, and ``_final_obs``, which of them ended.
"""

from typing import Optional

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete, MultiDiscrete
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from fb_fairseq.rl.envs import WORLDS
from fb_fairseq.rl.envs.base import World

RENDER_MODES = ["rgb_array", "ansi"]
PIXELS = 16  # of a cell's side
NAMES = {name: f"fb_fairseq/{''.join(part.capitalize() for part in name.split('_'))}-v0" for name in WORLDS}


def check_render_mode(mode: Optional[str]) -> None:
    """
    Raises:
        ValueError: there is no such mode.
    """
    if mode is not None and mode not in RENDER_MODES:
        raise ValueError(f"render_mode {mode}: unknown, give one of {', '.join(RENDER_MODES)}")


def checked(actions, world: World) -> np.ndarray:
    """The actions [N] as numbers.

    Raises:
        ValueError: one is not in the action space.
    """
    actions = np.asarray(actions)
    if actions.shape != (world.episodes,) or actions.dtype.kind not in "iu":
        raise ValueError(f"action {actions}: give {world.episodes} whole numbers")
    outside = actions[(actions < 0) | (actions >= len(world.actions))]
    if len(outside):
        raise ValueError(f"action {outside[0]}: give 0 to {len(world.actions) - 1} ({', '.join(world.actions)})")
    return actions


def render(world: World, episode: int, mode: Optional[str]):
    """An episode as text, or as an image [rows, columns, 3]; None without a mode."""
    if mode == "ansi":
        return world.text(episode)
    return world.image(episode).repeat(PIXELS, 0).repeat(PIXELS, 1) if mode == "rgb_array" else None


class WorldEnv(gymnasium.Env):
    """One episode at a time.

    Args:
        world: a name in ``WORLDS``; sizes are its arguments.

    Raises:
        ValueError: a size, the mode, or an action is out of range.
    """

    metadata = {"render_modes": RENDER_MODES, "render_fps": 8}

    def __init__(self, world: str, render_mode: Optional[str] = None, **sizes):
        check_render_mode(render_mode)
        self.render_mode = render_mode
        self.world = WORLDS[world](1, **sizes)
        self.observation_space = MultiDiscrete(np.array(self.world.observation))
        self.action_space = Discrete(len(self.world.actions))

    def reset(self, *, seed: Optional[int] = None, options: Optional[dict] = None):
        super().reset(seed=seed)
        self.world.rng = self.np_random
        self.world.start(np.array([0]))
        return self.world.observe()[0], {}

    def step(self, action):
        outcome = self.world.move(checked(np.asarray(action)[None], self.world))
        rewards, terminated, truncated = (value[0].item() for value in outcome)
        return self.world.observe()[0], rewards, terminated, truncated, {}

    def render(self):
        return render(self.world, 0, self.render_mode)


class WorldVectorEnv(VectorEnv):
    """``num_envs`` episodes side by side; see ``WorldEnv``."""

    metadata = {"render_modes": RENDER_MODES, "render_fps": 8, "autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, world: str, num_envs: int = 1, render_mode: Optional[str] = None, **sizes):
        check_render_mode(render_mode)
        self.render_mode = render_mode
        self.num_envs = num_envs
        self.world = WORLDS[world](num_envs, **sizes)
        self.single_observation_space = MultiDiscrete(np.array(self.world.observation))
        self.single_action_space = Discrete(len(self.world.actions))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed: Optional[int] = None, options: Optional[dict] = None):
        if seed is not None:
            self._np_random, self._np_random_seed = seeding.np_random(seed)
        self.world.rng = self.np_random
        self.world.start(np.arange(self.num_envs))
        return self.world.observe(), {}

    def step(self, actions):
        outcome = self.world.move(checked(actions, self.world))
        observation, infos = self.world.observe(), {}
        ended = outcome.terminated | outcome.truncated
        if ended.any():
            infos = {"final_obs": observation, "_final_obs": ended}
            self.world.start(np.flatnonzero(ended))
            observation = self.world.observe()
        return observation, *outcome, infos

    def render(self):
        return tuple(render(self.world, episode, self.render_mode) for episode in range(self.num_envs))


for _name, _id in NAMES.items():
    gymnasium.register(
        _id,
        entry_point="fb_fairseq.rl.envs.gymnasium_api:WorldEnv",
        vector_entry_point="fb_fairseq.rl.envs.gymnasium_api:WorldVectorEnv",
        kwargs={"world": _name},
    )
