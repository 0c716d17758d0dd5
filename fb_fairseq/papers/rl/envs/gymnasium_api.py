"""The gymnasium API of the environments.

Use::

    env = gymnasium.make("fb_fairseq/Maze-v0")
    envs = gymnasium.make_vec("fb_fairseq/Maze-v0", num_envs=64)

Importing this module registers the environments. Vectorised environments reset in the step that ends an episode
(``AutoresetMode.SAME_STEP``); ``infos`` then has the last observations of all environments, ``final_obs``, and which of
their episodes ended, ``_final_obs``.
"""

from inspect import signature

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete, MultiDiscrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from fb_fairseq.errors import UserError, flag
from fb_fairseq.papers.rl.envs import ENVS
from fb_fairseq.papers.rl.envs.base import BatchedEnv
from fb_fairseq.papers.rl.options import check_choice

RENDER_MODES = ["rgb_array", "ansi"]
RENDER_FPS = 8
CELL_PIXELS = 16  # side of a cell in rendered images
ENV_IDS = {name: f"fb_fairseq/{''.join(part.capitalize() for part in name.split('_'))}-v0" for name in ENVS}


def _build(env, name: str, number: int, render_mode: str | None, sizes: dict) -> tuple[MultiDiscrete, Discrete]:
    """Build the simulation of an environment. Returns the spaces of a single one's observations and actions."""
    if render_mode is not None and render_mode not in RENDER_MODES:
        raise ValueError(f"render_mode {render_mode}: unknown; choose from {', '.join(RENDER_MODES)}")
    env.render_mode, env.batched_env = render_mode, ENVS[name](number, **sizes)
    return MultiDiscrete(np.array(env.batched_env.observation_sizes)), Discrete(len(env.batched_env.action_names))


def _check_actions(actions, env: BatchedEnv) -> np.ndarray:
    """The actions [B] as an array."""
    actions, largest = np.asarray(actions), len(env.action_names) - 1
    integers = actions.shape == (env.num_envs,) and actions.dtype.kind in "iu"
    if not integers or (actions < 0).any() or (actions > largest).any():
        meaning = ", ".join(env.action_names)
        raise ValueError(f"action {actions}: give {env.num_envs} integers from 0 to {largest} ({meaning})")
    return actions


def _render(env: BatchedEnv, index: int, mode: str | None):
    """Render one environment as text or as an image [rows, columns, 3]; None if there is no render mode."""
    if mode == "ansi":
        return env.render_text(index)
    return env.render_image(index).repeat(CELL_PIXELS, 0).repeat(CELL_PIXELS, 1) if mode == "rgb_array" else None


class SingleEnv(gymnasium.Env):
    """One environment with gymnasium's ``Env`` API."""

    metadata = {"render_modes": RENDER_MODES, "render_fps": RENDER_FPS}

    def __init__(self, env_name: str, render_mode: str | None = None, **sizes):
        self.observation_space, self.action_space = _build(self, env_name, 1, render_mode, sizes)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self.batched_env.rng = self.np_random
        self.batched_env.reset(np.array([0]))
        return self.batched_env.observe()[0], {}

    def step(self, action):
        result = self.batched_env.step(_check_actions(np.asarray(action)[None], self.batched_env))
        reward, terminated, truncated = (value[0].item() for value in result)
        return self.batched_env.observe()[0], reward, terminated, truncated, {}

    def render(self):
        return _render(self.batched_env, 0, self.render_mode)


class ParallelEnv(VectorEnv):
    """``num_envs`` environments with gymnasium's ``VectorEnv`` API; see ``SingleEnv``."""

    metadata = {"render_modes": RENDER_MODES, "render_fps": RENDER_FPS, "autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, env_name: str, num_envs: int = 1, render_mode: str | None = None, **sizes):
        self.num_envs = num_envs
        spaces = _build(self, env_name, num_envs, render_mode, sizes)
        self.single_observation_space, self.single_action_space = spaces
        self.observation_space, self.action_space = (batch_space(space, num_envs) for space in spaces)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self.batched_env.rng = self.np_random
        self.batched_env.reset(np.arange(self.num_envs))
        return self.batched_env.observe(), {}

    def step(self, actions):
        result = self.batched_env.step(_check_actions(actions, self.batched_env))
        observation, infos = self.batched_env.observe(), {}
        ended = result.terminated | result.truncated
        if ended.any():
            infos = {"final_obs": observation, "_final_obs": ended}
            self.batched_env.reset(np.flatnonzero(ended))
            observation = self.batched_env.observe()
        return observation, *result, infos

    def render(self):
        return tuple(_render(self.batched_env, index, self.render_mode) for index in range(self.num_envs))


for _name, _id in ENV_IDS.items():
    gymnasium.register(
        _id,
        entry_point="fb_fairseq.papers.rl.envs.gymnasium_api:SingleEnv",
        vector_entry_point="fb_fairseq.papers.rl.envs.gymnasium_api:ParallelEnv",
        kwargs={"env_name": _name},
    )


def make_vector_env(
    name: str, num_envs: int, sizes: dict[str, int] | None = None, render_mode: str | None = None
) -> VectorEnv:
    """Environments that run in parallel."""
    check_choice("environment", name, list(ENV_IDS))
    for option in sizes or {}:
        if option not in signature(ENVS[name]).parameters:
            raise UserError(f"{flag(option)}: not an option of --environment {name}; leave it out")
    return gymnasium.make_vec(
        ENV_IDS[name], num_envs, vectorization_mode="vector_entry_point", render_mode=render_mode, **(sizes or {})
    )
