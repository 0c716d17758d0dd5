"""Reward and success of a trained agent, and recordings of its episodes."""

import numpy as np
import torch

from fb_fairseq.drawing import png_text
from fb_fairseq.errors import UserError
from fb_fairseq.files import WRITER, atomic_write, check_output_file
from fb_fairseq.papers.rl.agent import Actor, Agent, AgentMemory
from fb_fairseq.papers.rl.envs.gymnasium_api import RENDER_FPS
from fb_fairseq.papers.rl.options import TrainingOptions
from fb_fairseq.papers.rl.trainer import Play, load_checkpoint
from fb_fairseq.tensor_files import using

NAME = "rl-evaluate"  # as the writer of files
# Layout of a .png recording.
MAX_IMAGES = 40
MAX_WIDTH = 1600  # pixels
BORDER = 2  # white pixels around each image
WHITE = 255


def load_agent(path: str, device: torch.device) -> tuple[Agent, TrainingOptions]:
    """Load the agent of a checkpoint, and the options it was trained with."""
    state = load_checkpoint(path)
    with using(path):
        agent = Agent.from_settings(state["settings"]).to(device)
        agent.load_state_dict(state["agent"])
        return agent.eval(), TrainingOptions(**state["options"])


def new_play(
    agent: Agent, options: TrainingOptions, number: int, seed: int, render_mode: str | None = None
) -> tuple[Play, Actor]:
    """Parallel environments at the start of an episode, and an actor for them."""
    device = agent.offset_O.device
    play = Play(options, number, seed, device, render_mode)
    sizes = play.batched_env.observation_sizes, len(play.batched_env.action_names)
    if sizes != (agent.observation_sizes, agent.num_actions):
        raise UserError("the agent was trained in another environment, or with other sizes")
    return play, Actor(agent, AgentMemory.initial(number, device))


def evaluate(
    agent: Agent, options: TrainingOptions, episodes: int, seed: int, greedy: bool = False
) -> dict[str, float]:
    """The mean reward per episode, the percentage of episodes with a reward (``success``), and the number of episodes.
    Each of ``episodes`` parallel environments contributes its first episode, so that short episodes are not
    overrepresented."""
    play, actor = new_play(agent, options, episodes, seed)
    totals, running = np.zeros(episodes), np.ones(episodes, bool)
    while running.any():
        *_, rewards = play.step(actor, greedy)
        totals += rewards * running
        running &= ~play.starts
    return {"reward": float(totals.mean()), "success": 100 * float((totals > 0).mean()), "episodes": episodes}


def record_episode(agent: Agent, options: TrainingOptions, seed: int, greedy: bool = False) -> list[np.ndarray]:
    """Images of an episode, one per step; arguments as those of ``evaluate``."""
    play, actor = new_play(agent, options, 1, seed, "rgb_array")
    images = []
    while not images or not play.starts[0]:
        images.append(play.envs.render()[0])
        play.step(actor, greedy)
    return images


def check_recording_path(path: str, overwrite: bool) -> None:
    """Check the file name of a recording."""
    if not path.endswith((".gif", ".png")):
        raise UserError(f"--record {path}: give a file name that ends in .gif or .png")
    check_output_file("--record", path, NAME, overwrite)


def write_recording(images: list[np.ndarray], path: str) -> None:
    """Write the images of an episode as an animated .gif, or as a .png with up to 40 of them in rows."""
    from PIL import Image

    if path.endswith(".png"):
        with atomic_write(path) as temporary:
            Image.fromarray(_contact_sheet(images)).save(temporary, "PNG", pnginfo=png_text(NAME))
        return
    pages = [Image.fromarray(image) for image in images]
    options = dict(duration=1000 // RENDER_FPS, loop=0, comment=f"{WRITER}: {NAME}".encode())  # (milliseconds)
    with atomic_write(path) as temporary:
        pages[0].save(temporary, "GIF", save_all=True, append_images=pages[1:], **options)


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
