"""The trainer: collects blocks of T steps in B environments, and updates the agent after each block. It is an advantage
actor-critic (A2C; Mnih et al. 2016). ``train`` is the loop around it, with log and checkpoints. Shape suffixes: T steps
of a block, B environments, O components of an observation, A actions.
"""

import json
import os
import sys
from collections import deque
from dataclasses import asdict
from time import perf_counter

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fb_fairseq.command_line import check_same_options
from fb_fairseq.errors import UserError
from fb_fairseq.folders import start_run
from fb_fairseq.interruption import heeding_signals
from fb_fairseq.modules.interface import StreamState
from fb_fairseq.papers.rl.agent import Actor, Agent, AgentMemory
from fb_fairseq.papers.rl.envs import make_env
from fb_fairseq.papers.rl.log import LOG_FILE, truncate_log
from fb_fairseq.papers.rl.options import AgentOptions, TrainingOptions
from fb_fairseq.tensor_files import load_file, save_file, using

RECENT_EPISODES = 500  # "the reward is reported averaged over the last 500 episodes" (v1 §4.4)
CHECKPOINT_FILE = "checkpoint.pt"
SAVE_SECONDS = 120  # a checkpoint at least this often
REQUIRED_KEYS = {"settings", "options", "agent", "world"}  # tell an agent's checkpoint from one of fairseq


class Play:
    """Environments that run in parallel, in which an agent acts.

    Args:
        options: say which.
        number: how many, B.
        seed: of the environments and the actions.
        device: of the agent.

    Attributes:
        env: the environments.
        rng: of the actions.
        observation: the next step's [B, O].
        starts: whether the next step is the first of an episode [B].
    """

    def __init__(self, options: TrainingOptions, number: int, seed: int, device: torch.device):
        self.env = make_env(options.environment, number, options.sizes)
        self.env.rng = np.random.default_rng(seed)
        self.env.reset(np.arange(number))
        self.device = device
        self.rng = torch.Generator(device).manual_seed(seed)
        self.observation = self.env.observe()
        self.starts = np.ones(number, bool)

    def seen(self) -> tuple[Tensor, Tensor]:
        """The next step's observations [B, O], and whether it is the first of an episode [B]."""
        return torch.as_tensor(self.observation, device=self.device), torch.as_tensor(self.starts, device=self.device)

    def step(self, actor: Actor) -> tuple[Tensor, Tensor, Tensor, np.ndarray]:
        """Act once in each environment. Episodes that end are followed by new ones.

        Args:
            actor: the agent, from whose policy actions are sampled.

        Returns:
            What was ``seen``, the actions [B], and the rewards [B].
        """
        observation_BO, starts_B = self.seen()
        logits_BA, _ = actor.step(observation_BO, starts_B)
        action_B = torch.multinomial(logits_BA.softmax(-1), 1, generator=self.rng).squeeze(-1)
        actor.previous_B = action_B
        rewards, self.starts = self.env.step(action_B.cpu().numpy())
        self.env.reset(np.flatnonzero(self.starts))
        self.observation = self.env.observe()
        return observation_BO, starts_B, action_B, rewards


def discounted_returns(rewards_TB: Tensor, ended_TB: Tensor, next_value_B: Tensor, discount: float) -> Tensor:
    """Discounted sums of the rewards from each step to the end of its episode.

    Args:
        rewards_TB: the reward of each step.
        ended_TB: whether the step ended its episode.
        next_value_B: the value after the block, which stands for later rewards of episodes that go on.
        discount: factor of a reward for each step that it comes later, 0 to 1.

    Returns:
        The sums [T, B].
    """
    returns, following = [], next_value_B
    for rewards_B, ended_B in zip(rewards_TB.flip(0), ended_TB.flip(0)):
        following = rewards_B + discount * following.masked_fill(ended_B, 0)
        returns.append(following)
    return torch.stack(returns[::-1])


def a2c_loss(
    options: TrainingOptions, logits_TBA: Tensor, values_TB: Tensor, actions_TB: Tensor, returns_TB: Tensor
) -> Tensor:
    """The A2C loss: policy gradient, squared error of the value, and an entropy bonus, averaged over the block.

    Args:
        options: the weights of the parts.
        logits_TBA: of the policy.
        values_TB: the agent's estimates of the returns; no gradient of the policy's part flows into them.
        actions_TB: the actions taken.
        returns_TB: see ``discounted_returns``.
    """
    log_p_TBA = F.log_softmax(logits_TBA, -1)
    log_p_TB = log_p_TBA.gather(-1, actions_TB[..., None]).squeeze(-1)
    policy = -(log_p_TB * (returns_TB - values_TB).detach()).mean()
    value = (returns_TB - values_TB).square().mean()
    entropy = -(log_p_TBA.exp() * log_p_TBA).sum(-1).mean()
    return policy + options.value_cost * value - options.entropy_cost * entropy


class Trainer:
    """Trains an agent block by block.

    The agent acts step by step without gradients; then the whole block is run again at once, with gradients. Returns
    are sums of discounted rewards up to the end of the episode or of the block; at the end of the block, the value
    stands for later rewards. As in language modelling, memory is carried from block to block; it is reset at the end of
    an episode. An episode that reaches the step limit counts as ended (its value is not used).

    Args:
        options: of training.
        agent: the architecture.
        device: where to train.
    """

    def __init__(self, options: TrainingOptions, agent: AgentOptions, device: torch.device = torch.device("cpu")):
        self.options, self.device = options, device
        self.play = Play(options, options.environments, options.seed, device)
        env = self.play.env
        with torch.random.fork_rng():
            torch.manual_seed(options.seed)
            self.agent = Agent(env.observation_sizes, len(env.action_names), agent).to(device)
        if options.optimizer == "adam":
            self.optimizer = torch.optim.Adam(self.agent.parameters(), options.lr)
        else:
            self.optimizer = torch.optim.RMSprop(self.agent.parameters(), options.lr, eps=options.rmsprop_eps)
        self.memory = AgentMemory.initial(options.environments, device)
        self.episode_rewards = np.zeros(options.environments)  # sum so far in each running episode
        self.recent_rewards: deque[float] = deque(maxlen=RECENT_EPISODES)
        self.frames = 0

    def train_block(self) -> None:
        """Collect a block, take an optimizer step on it, and carry the memory to its end."""
        seen_TBO, starts_TB, actions_TB, rewards_TB, ended_TB, next_value_B = self._collect()
        returns_TB = discounted_returns(rewards_TB, ended_TB, next_value_B, self.options.discount)
        logits_TBA, values_TB, memory = self.agent(seen_TBO, actions_TB, starts_TB, self.memory)
        loss = a2c_loss(self.options, logits_TBA, values_TB, actions_TB, returns_TB)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.agent.parameters(), self.options.clip_norm)
        self.optimizer.step()
        self.memory = memory
        self.frames += actions_TB.numel()

    def _collect(self) -> list[Tensor]:
        """Act for a block of steps, and move the sums of rewards of the episodes that end to ``recent_rewards``.

        Returns:
            Of each step, what the agent saw [T, B, O], whether it was the first of an episode, the action, the reward
            that followed, and whether it ended the episode [T, B]; and the value after the last step [B].
        """
        steps = []
        play = self.play
        actor = Actor(self.agent, self.memory)
        for _ in range(self.options.block):
            *acted, rewards = play.step(actor)
            steps.append((*acted, *(torch.as_tensor(x, device=self.device) for x in (rewards, play.starts))))
            self.episode_rewards += rewards
            self.recent_rewards.extend(self.episode_rewards[play.starts].tolist())
            self.episode_rewards[play.starts] = 0
        _, next_value_B = actor.step(*play.seen())
        return [*map(torch.stack, zip(*steps)), next_value_B]

    def state_dict(self) -> dict:
        """Everything that further training depends on, as plain values and tensors for a checkpoint."""
        env = self.play.env.state_dict()
        return {
            "settings": self.agent.settings(),
            "options": asdict(self.options),
            "agent": self.agent.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "frames": self.frames,
            "memory": None if self.memory.state is None else self.memory.state.memory_KCBD,
            "age": self.memory.age_B,
            "previous": self.memory.previous_B,
            # (the state of the environments; the key is that of the first version)
            "world": {name: torch.from_numpy(x) if isinstance(x, np.ndarray) else x for name, x in env.items()},
            "observation": torch.from_numpy(self.play.observation),
            "starts": torch.from_numpy(self.play.starts),
            "rewards": torch.from_numpy(self.episode_rewards),
            "recent": list(self.recent_rewards),
            "rng": self.play.rng.get_state(),
            "device": self.device.type,
        }

    def load_state_dict(self, state: dict) -> None:
        """Resume from a checkpoint."""
        self.agent.load_state_dict(state["agent"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.frames = state["frames"]
        carried = None if state["memory"] is None else StreamState(state["memory"].to(self.device))
        self.memory = AgentMemory(carried, state["age"].to(self.device), state["previous"].to(self.device))
        world = {name: x.numpy() if torch.is_tensor(x) else x for name, x in state["world"].items()}
        self.play.env.load_state_dict(world)
        self.play.observation = state["observation"].numpy().copy()
        self.play.starts = state["starts"].numpy().copy()
        self.episode_rewards = state["rewards"].numpy().copy()
        self.recent_rewards.extend(state["recent"])
        if state["device"] == self.device.type:
            self.play.rng.set_state(state["rng"])
        else:  # a generator's state on a CPU does not fit one on a GPU
            self.play.rng.manual_seed(self.options.seed + self.frames)


def load_checkpoint(path: str) -> dict:
    """Read a checkpoint, its tensors on the CPU."""
    state = load_file(path)
    if not isinstance(state, dict) or not REQUIRED_KEYS <= set(state):
        raise UserError(f"{path}: not a checkpoint of an agent; give a {CHECKPOINT_FILE} of train, or another --out")
    return state


def fixed_options(options: dict, settings: dict) -> dict:
    """The options that must not change between runs, by name. The environment comes first: if it differs, that is the
    difference to report.
    """
    merged = {"environment": options["environment"], **(options["sizes"] or {}), **settings, **options}
    return {name: value for name, value in merged.items() if name not in ("observation", "actions", "sizes", "frames")}


def train(options: TrainingOptions, agent: AgentOptions, out: str, device: torch.device, log_interval: int) -> Trainer:
    """Train an agent for ``options.frames`` frames. Resumes from ``out``/checkpoint.pt if it exists.

    Args:
        options: of training.
        agent: the architecture.
        out: folder of the checkpoint and the log.
        device: where to train.
        log_interval: blocks between log entries.

    Raises:
        Interrupted: after the block in which a signal comes, when it is saved.
    """
    trainer = Trainer(options, agent, device)
    checkpoint = os.path.join(out, CHECKPOINT_FILE)
    log = os.path.join(out, LOG_FILE)
    state = load_checkpoint(checkpoint) if os.path.exists(checkpoint) else None
    start_run("--out", out, "rl", known=state is not None)
    if state is not None:
        own = trainer.state_dict()
        with using(checkpoint):
            theirs, ours = (fixed_options(each["options"], each["settings"]) for each in (state, own))
            check_same_options(checkpoint, theirs, ours)
            trainer.load_state_dict(state)
        if trainer.frames >= options.frames:
            frames = f"{trainer.frames:,} frames of --frames {options.frames:,}"
            text = f"this run is finished: {frames}; nothing is trained or written (to go on, give more)"
            print(text, file=sys.stderr)
            return trainer
    truncate_log(log, trainer.frames)
    logged_at = perf_counter()
    logged_frames = trainer.frames
    saved_at = perf_counter()
    frames_per_update = options.environments * options.block
    done = False
    with heeding_signals() as interruption:
        while not done:
            trainer.train_block()
            blocks = trainer.frames // frames_per_update
            is_last = trainer.frames >= options.frames
            done = is_last or bool(interruption.requested)
            if blocks % log_interval == 0 or is_last:
                fps = (trainer.frames - logged_frames) / (perf_counter() - logged_at)
                entry = _log_entry(trainer, fps)
                with open(log, "a") as file:
                    file.write(json.dumps(entry) + "\n")
                reward = f", reward {entry['reward']:.3f}" if "reward" in entry else ""
                print(f"{trainer.frames:,} of {options.frames:,} frames{reward}, {fps:,.0f} frames/s", file=sys.stderr)
                logged_at = perf_counter()
                logged_frames = trainer.frames
            if done or perf_counter() - saved_at > SAVE_SECONDS:
                save_file(trainer.state_dict(), checkpoint)
                saved_at = perf_counter()
    interruption.end_if_requested(blocks, -(-options.frames // frames_per_update))
    return trainer


def _log_entry(trainer: Trainer, fps: float) -> dict:
    """Frames, speed, and reward and success of recent episodes."""
    entry = {"frames": trainer.frames, "fps": round(fps, 1)}
    if trainer.recent_rewards:
        rewards = np.array(trainer.recent_rewards)
        entry.update(reward=float(rewards.mean()), success=float((rewards > 0).mean()))
    return entry
