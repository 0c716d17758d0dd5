"""Episodes of a trained agent: what they bring, and how one looks."""

from typing import List, NamedTuple, Tuple

import numpy as np
import torch

from fb_fairseq.rl.a2c import TrainingOptions, load, make_environments
from fb_fairseq.rl.agent import Agent, AgentMemory, AgentOptions
from fb_fairseq.rl.envs.gymnasium_api import WorldEnv


class Result(NamedTuple):
    """Of whole episodes: the mean sum of rewards, and the share of those with any, in percent."""

    reward: float
    success: float
    episodes: int


def load_agent(path: str, device: torch.device) -> Tuple[Agent, TrainingOptions]:
    """Of a checkpoint of ``train``.

    Raises:
        ValueError: the file is something else.
    """
    state = load(path)
    settings = dict(state["settings"])
    agent = Agent(settings.pop("observation"), settings.pop("actions"), AgentOptions(**settings)).to(device)
    agent.load_state_dict(state["agent"])
    return agent.eval(), TrainingOptions(**state["options"])


class Player:
    """An agent in environments, from new episodes on.

    Args:
        greedy: take the most probable action; else one is drawn.
    """

    def __init__(self, agent: Agent, environments, seed: int, greedy: bool = False):
        world = environments.unwrapped.world
        if (world.observation, len(world.actions)) != (agent.observation, agent.actions):
            raise ValueError("the agent was trained in another environment, or with other sizes")
        self.environments, self.greedy, self.agent = environments, greedy, agent
        self.device = agent.first_K.device
        self.rng = torch.Generator(self.device).manual_seed(seed)
        self.observation, _ = environments.reset(seed=seed)
        self.actor = agent.actor(AgentMemory.empty(environments.num_envs, self.device))
        self.starts = np.ones(environments.num_envs, bool)

    def step(self) -> Tuple[np.ndarray, np.ndarray]:
        """Rewards, and which episodes ended."""
        logits_BA, _ = self.actor.step(
            torch.as_tensor(self.observation, device=self.device), torch.as_tensor(self.starts, device=self.device)
        )
        action = logits_BA.argmax(-1)
        if not self.greedy:
            action = torch.multinomial(logits_BA.softmax(-1), 1, generator=self.rng).squeeze(-1)
        self.actor.acted(action)
        self.observation, rewards, terminated, truncated, _ = self.environments.step(action.cpu().numpy())
        self.starts = terminated | truncated
        return rewards, self.starts


def evaluate(agent: Agent, options: TrainingOptions, episodes: int, seed: int, greedy: bool = False) -> Result:
    """The first episode of each of as many environments (so that short episodes count no more than long ones)."""
    environments = make_environments(options.environment, episodes, options.sizes)
    player = Player(agent, environments, seed, greedy)
    totals, running = np.zeros(episodes), np.ones(episodes, bool)
    while running.any():
        rewards, ended = player.step()
        totals += rewards * running
        running &= ~ended
    return Result(float(totals.mean()), 100 * float((totals > 0).mean()), episodes)


def frames(agent: Agent, options: TrainingOptions, seed: int, greedy: bool = False) -> List[np.ndarray]:
    """Images of an episode's steps."""
    environments = make_environments(options.environment, 1, options.sizes, render_mode="rgb_array")
    player = Player(agent, environments, seed, greedy)
    images = []
    ended = False
    while not ended:
        images.append(environments.render()[0])
        ended = player.step()[1][0]
    return images


def write_images(images: List[np.ndarray], path: str) -> None:
    """A moving .gif, or a .png with up to 40 of the steps side by side.

    Raises:
        ValueError: the file has another ending.
    """
    from PIL import Image

    if path.endswith(".gif"):
        pages = [Image.fromarray(image) for image in images]
        pages[0].save(
            path, save_all=True, append_images=pages[1:], duration=1000 // WorldEnv.metadata["render_fps"], loop=0
        )
        return
    if not path.endswith(".png"):
        raise ValueError(f"--record {path}: give a file name that ends in .gif or .png")
    shown = [images[i] for i in np.unique(np.linspace(0, len(images) - 1, 40).astype(int))]
    shown = [np.pad(image, ((2, 2), (2, 2), (0, 0)), constant_values=255) for image in shown]
    height, width, _ = shown[0].shape
    columns = max(1, min(len(shown), 1600 // width))
    rows = -(-len(shown) // columns)
    shown += [np.full_like(shown[0], 255)] * (rows * columns - len(shown))
    sheet = np.array(shown).reshape(rows, columns, height, width, 3).swapaxes(1, 2)
    Image.fromarray(sheet.reshape(rows * height, columns * width, 3)).save(path)
