"""Reward and success of a trained agent, and recordings of its episodes."""

import numpy as np
import torch

from fb_fairseq.errors import UserError
from fb_fairseq.files import WRITER, atomic_write
from fb_fairseq.papers.rl.agent import Actor, Agent, AgentMemory
from fb_fairseq.papers.rl.envs import make_env
from fb_fairseq.papers.rl.options import TrainingOptions
from fb_fairseq.papers.rl.play import Play
from fb_fairseq.papers.rl.runs import load_checkpoint
from fb_fairseq.tensor_files import using

NAME = "rl-evaluate"  # as the writer of files
SEED = 0  # of the environments and the sampled actions
FRAMES_PER_SECOND = 8
CELL_PIXELS = 16  # side of a cell in recordings


def load_agent(path: str, device: torch.device) -> tuple[Agent, TrainingOptions]:
    """Load the agent of a checkpoint, and the options it was trained with."""
    state = load_checkpoint(path)
    with using(path):
        agent = Agent.from_settings(state["settings"]).to(device)
        agent.load_state_dict(state["agent"])
        options = TrainingOptions(**state["options"])
        env = make_env(options.environment, 1, options.sizes)
    if (agent.observation_sizes, agent.num_actions) != (tuple(env.observation_sizes), len(env.action_names)):
        raise UserError(f"{path}: its agent does not fit its environment; give an intact checkpoint")
    return agent.eval(), options


def new_play(agent: Agent, options: TrainingOptions, number: int) -> tuple[Play, Actor]:
    """So many parallel environments at the start of an episode, and an actor for them."""
    device = agent.offset_O.device
    play = Play(options, number, SEED, device)
    return play, Actor(agent, AgentMemory.initial(number, device))


def evaluate(agent: Agent, options: TrainingOptions, episodes: int) -> dict[str, float]:
    """Reward and success of an agent. Parallel environments contribute their first episode each, so that short episodes
    are not overrepresented.

    Args:
        agent: the agent.
        options: say which environment.
        episodes: their number.

    Returns:
        "reward", the mean per episode; "success", the percentage of episodes with a reward; "episodes".
    """
    play, actor = new_play(agent, options, episodes)
    totals = np.zeros(episodes)
    running = np.ones(episodes, bool)
    while running.any():
        step = play.step(actor)
        totals += step.reward.cpu().numpy() * running
        running &= ~play.starts
    return {"reward": float(totals.mean()), "success": 100 * float((totals > 0).mean()), "episodes": episodes}


def record_episode(path: str, agent: Agent, options: TrainingOptions) -> None:
    """Write an episode as an animated .gif: what is there before each action. (The end of the last one is not shown.)

    Args:
        path: the file.
        agent, options: as of ``evaluate``.
    """
    from PIL import Image

    play, actor = new_play(agent, options, 1)
    pages = []
    while not pages or not play.starts[0]:
        pages.append(Image.fromarray(play.env.render_image(0).repeat(CELL_PIXELS, 0).repeat(CELL_PIXELS, 1)))
        play.step(actor)
    with atomic_write(path) as temporary:
        pages[0].save(
            temporary,
            "GIF",
            save_all=True,
            append_images=pages[1:],
            duration=1000 // FRAMES_PER_SECOND,  # milliseconds
            loop=0,
            comment=f"{WRITER}: {NAME}".encode(),
        )
