"""Reward and success of a trained agent, and recordings of its episodes."""

from typing import NamedTuple

import numpy as np
import torch
from gymnasium.vector import VectorEnv

from fb_fairseq.drawing import PICTURES
from fb_fairseq.errors import UserError
from fb_fairseq.files import atomic_write, check_output_file
from fb_fairseq.papers.rl.agent import Agent, AgentMemory
from fb_fairseq.papers.rl.envs.gymnasium_api import RENDER_FPS, make_vector_env
from fb_fairseq.papers.rl.options import TrainingOptions
from fb_fairseq.papers.rl.trainer import load_checkpoint
from fb_fairseq.tensor_files import using

# Layout of a .png recording.
MAX_IMAGES = 40
MAX_WIDTH = 1600  # pixels
BORDER = 2  # white pixels around each image
WHITE = 255


class EvaluationResult(NamedTuple):
    """Result of an evaluation. The names are keys of the JSON output."""

    reward: float  # mean sum of rewards per episode
    success: float  # percentage of episodes with a reward
    episodes: int  # number of episodes


def load_agent(path: str, device: torch.device) -> tuple[Agent, TrainingOptions]:
    """Load the agent of a checkpoint, and the options it was trained with."""
    state = load_checkpoint(path)
    with using(path, builds_model=True):
        agent = Agent.from_settings(state["settings"]).to(device)
        agent.load_state_dict(state["agent"])
        return agent.eval(), TrainingOptions(**state["options"])


class Player:
    """Lets an agent act in environments, starting with new episodes."""

    def __init__(self, agent: Agent, envs: VectorEnv, seed: int, greedy: bool = False):
        batched_env = envs.unwrapped.batched_env
        expected = agent.observation_sizes, agent.num_actions
        if (batched_env.observation_sizes, len(batched_env.action_names)) != expected:
            raise UserError("the agent was trained in another environment, or with other sizes")
        self.envs, self.greedy = envs, greedy
        self.device = agent.offset_O.device
        self.rng = torch.Generator(self.device).manual_seed(seed)
        self.observation, _ = envs.reset(seed=seed)
        self.actor = agent.actor(AgentMemory.initial(envs.num_envs, self.device))
        self.starts = np.ones(envs.num_envs, bool)

    def step(self) -> tuple[np.ndarray, np.ndarray]:
        """Act once in each environment. Returns rewards [B], and whether the episodes ended [B]."""
        logits_BA, _ = self.actor.step(
            torch.as_tensor(self.observation, device=self.device), torch.as_tensor(self.starts, device=self.device)
        )
        action_B = logits_BA.argmax(-1)
        if not self.greedy:
            action_B = torch.multinomial(logits_BA.softmax(-1), 1, generator=self.rng).squeeze(-1)
        self.actor.record_actions(action_B)
        self.observation, rewards, terminated, truncated, _ = self.envs.step(action_B.cpu().numpy())
        self.starts = terminated | truncated
        return rewards, self.starts


def evaluate(
    agent: Agent, options: TrainingOptions, episodes: int, seed: int, greedy: bool = False
) -> EvaluationResult:
    """Evaluate an agent. Each of ``episodes`` parallel environments contributes its first episode, so that short
    episodes are not overrepresented."""
    player = Player(agent, make_vector_env(options.environment, episodes, options.sizes), seed, greedy)
    totals, running = np.zeros(episodes), np.ones(episodes, bool)
    while running.any():
        rewards, ended = player.step()
        totals += rewards * running
        running &= ~ended
    return EvaluationResult(float(totals.mean()), 100 * float((totals > 0).mean()), episodes)


def record_episode(agent: Agent, options: TrainingOptions, seed: int, greedy: bool = False) -> list[np.ndarray]:
    """Images of an episode, one per step; arguments as those of ``evaluate``."""
    envs = make_vector_env(options.environment, 1, options.sizes, render_mode="rgb_array")
    player = Player(agent, envs, seed, greedy)
    images = []
    ended = False
    while not ended:
        images.append(envs.render()[0])
        ended = player.step()[1][0]
    return images


def check_recording_path(path: str, overwrite: bool = False) -> None:
    """Check the file name of a recording."""
    if not path.endswith((".gif", ".png")):
        raise UserError(f"--record {path}: give a file name that ends in .gif or .png")
    check_output_file("--record", path, *PICTURES, overwrite=overwrite)


def write_recording(images: list[np.ndarray], path: str) -> None:
    """Write the images of an episode as an animated .gif, or as a .png with up to 40 of them in rows."""
    from PIL import Image

    check_recording_path(path, overwrite=True)
    if path.endswith(".png"):
        with atomic_write(path) as temporary:
            Image.fromarray(_contact_sheet(images)).save(temporary, "PNG")
        return
    pages = [Image.fromarray(image) for image in images]
    duration = 1000 // RENDER_FPS  # milliseconds
    with atomic_write(path) as temporary:
        pages[0].save(temporary, "GIF", save_all=True, append_images=pages[1:], duration=duration, loop=0)


def _contact_sheet(images: list[np.ndarray]) -> np.ndarray:
    """Evenly spaced images of an episode in rows, as one image."""
    shown = [images[i] for i in np.unique(np.linspace(0, len(images) - 1, MAX_IMAGES).astype(int))]
    shown = [np.pad(image, ((BORDER, BORDER), (BORDER, BORDER), (0, 0)), constant_values=WHITE) for image in shown]
    height, width, _ = shown[0].shape
    columns = max(1, min(len(shown), MAX_WIDTH // width))
    rows = -(-len(shown) // columns)
    shown += [np.full_like(shown[0], WHITE)] * (rows * columns - len(shown))
    sheet = np.array(shown).reshape(rows, columns, height, width, 3).swapaxes(1, 2)
    return sheet.reshape(rows * height, columns * width, 3)
