"""The trainer: collects blocks of T steps in B environments, and updates the agent after each block. It is an advantage
actor-critic (A2C; Mnih et al. 2016). Shape suffixes: T steps of a block, B environments, A actions."""

from collections import deque
from dataclasses import asdict
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fb_fairseq.errors import UserError, flag
from fb_fairseq.modules.interface import StreamState
from fb_fairseq.papers.rl.agent import Agent, AgentMemory
from fb_fairseq.papers.rl.envs.gymnasium_api import make_vector_env
from fb_fairseq.papers.rl.options import AgentOptions, TrainingOptions
from fb_fairseq.tensor_files import check_parameters, load_file

RECENT_EPISODES = 500  # "the reward is reported averaged over the last 500 episodes" (v1 §4.4)
CHECKPOINT_FILE = "checkpoint.pt"
# What a block begins with. (Its shapes depend on the options; those of the memory are checked by the layers.)
CARRIED = ("frames", "age", "previous", "world", "observation", "starts", "rewards")
REQUIRED_KEYS = {"settings", "options", "agent", "world"}  # tell an agent's checkpoint from one of fairseq


class Rollout(NamedTuple):
    """A block of steps as the agent experienced it."""

    observations_TBO: Tensor  # what the agent saw before each action
    starts_TB: Tensor  # whether the step is the first of an episode
    actions_TB: Tensor  # the actions taken
    rewards_TB: Tensor  # the rewards that followed
    ended_TB: Tensor  # whether the action ended the episode
    next_value_B: Tensor  # value after the last step


def discounted_returns(rewards_TB: Tensor, ended_TB: Tensor, next_value_B: Tensor, discount: float) -> Tensor:
    """Discounted sums of the rewards from each step to the end of its episode. Those of episodes that go on after the
    block end with its value then, ``next_value_B``."""
    returns, following = [], next_value_B
    for rewards_B, ended_B in zip(rewards_TB.flip(0), ended_TB.flip(0)):
        following = rewards_B + discount * following.masked_fill(ended_B, 0)
        returns.append(following)
    return torch.stack(returns[::-1])


def a2c_loss(
    options: TrainingOptions, logits_TBA: Tensor, values_TB: Tensor, actions_TB: Tensor, returns_TB: Tensor
) -> tuple[Tensor, dict[str, float]]:
    """The A2C loss: policy gradient, squared error of the value, and an entropy bonus, averaged over the block. Returns
    it, and its parts as log entries."""
    log_p_TBA = F.log_softmax(logits_TBA, -1)
    log_p_TB = log_p_TBA.gather(-1, actions_TB[..., None]).squeeze(-1)
    policy = -(log_p_TB * (returns_TB - values_TB).detach()).mean()
    value = (returns_TB - values_TB).square().mean()
    entropy = -(log_p_TBA.exp() * log_p_TBA).sum(-1).mean()
    loss = policy + options.value_cost * value - options.entropy_cost * entropy
    return loss, {"policy_loss": policy.item(), "value_loss": value.item(), "entropy": entropy.item()}


class Trainer:
    """Trains an agent block by block.

    The agent acts step by step without gradients; then the whole block is run again at once, with gradients. Returns
    are sums of discounted rewards up to the end of the episode or of the block; at the end of the block, the value
    stands for later rewards. As in language modelling, memory is carried from block to block; it is reset at the end of
    an episode. An episode that reaches the step limit counts as ended (its value is not used).
    """

    def __init__(self, options: TrainingOptions, agent: AgentOptions, device: torch.device = torch.device("cpu")):
        self.options, self.device = options, device
        self.envs = make_vector_env(options.environment, options.environments, options.sizes)
        self.batched_env = self.envs.unwrapped.batched_env
        self.rng = torch.Generator(device).manual_seed(options.seed)
        with torch.random.fork_rng():
            torch.manual_seed(options.seed)
            self.agent = Agent(self.batched_env.observation_sizes, len(self.batched_env.action_names), agent).to(device)
        if options.optimizer == "adam":
            self.optimizer = torch.optim.Adam(self.agent.parameters(), options.lr)
        else:
            self.optimizer = torch.optim.RMSprop(self.agent.parameters(), options.lr, eps=options.rmsprop_eps)
        self.memory = AgentMemory.initial(options.environments, device)
        self.observation, _ = self.envs.reset(seed=options.seed)
        self.starts = np.ones(options.environments, bool)
        self.episode_rewards = np.zeros(options.environments)  # sum so far in each running episode
        self.recent_rewards: deque[float] = deque(maxlen=RECENT_EPISODES)
        self.frames = 0

    def train_block(self) -> dict[str, float]:
        """Collect a block and update the agent. Returns losses, entropy and gradient norm, for the log."""
        rollout = self._collect()
        logged = self._update(rollout)
        self.frames += rollout.actions_TB.numel()
        return logged

    def _collect(self) -> Rollout:
        """Act for a block of steps."""
        observations, starts, actions, rewards, ended = [], [], [], [], []
        actor = self.agent.actor(self.memory)
        for _ in range(self.options.block):
            observations.append(self._tensor(self.observation))
            starts.append(self._tensor(self.starts))
            logits_BA, _ = actor.step(observations[-1], starts[-1])
            action_B = torch.multinomial(logits_BA.softmax(-1), 1, generator=self.rng).squeeze(-1)
            actor.record_actions(action_B)
            actions.append(action_B)
            self.observation, reward, terminated, truncated, _ = self.envs.step(action_B.cpu().numpy())
            self.starts = terminated | truncated
            rewards.append(self._tensor(reward))
            ended.append(self._tensor(self.starts))
            self._count_rewards(reward)
        _, next_value_B = actor.step(self._tensor(self.observation), self._tensor(self.starts))
        return Rollout(*map(torch.stack, (observations, starts, actions, rewards, ended)), next_value_B)

    def _count_rewards(self, reward: np.ndarray) -> None:
        """Add a step's rewards [B]; move the sums of the episodes it ended to ``recent_rewards``."""
        self.episode_rewards += reward
        self.recent_rewards.extend(self.episode_rewards[self.starts].tolist())
        self.episode_rewards[self.starts] = 0

    def _update(self, rollout: Rollout) -> dict[str, float]:
        """Take an optimizer step on a block, and carry the memory to its end."""
        seen, actions_TB = rollout.observations_TBO, rollout.actions_TB
        discount = self.options.discount
        returns_TB = discounted_returns(rollout.rewards_TB, rollout.ended_TB, rollout.next_value_B, discount)
        logits_TBA, values_TB, memory = self.agent(seen, actions_TB, rollout.starts_TB, self.memory)
        loss, logged = a2c_loss(self.options, logits_TBA, values_TB, actions_TB, returns_TB)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.agent.parameters(), self.options.clip_norm)
        self.optimizer.step()
        self.memory = memory
        return {**logged, "gnorm": norm.item()}

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.as_tensor(array, device=self.device)

    def state_dict(self) -> dict:
        """Everything that further training depends on, as plain values and tensors for a checkpoint."""
        env = self.batched_env.state_dict()
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
            "observation": torch.from_numpy(self.observation),
            "starts": torch.from_numpy(self.starts),
            "rewards": torch.from_numpy(self.episode_rewards),
            "recent": list(self.recent_rewards),
            "rng": self.rng.get_state(),
            "device": self.device.type,
        }

    def load_state_dict(self, state: dict) -> None:
        """Resume from a checkpoint."""
        check_same_options(state, {"options": asdict(self.options), "settings": self.agent.settings()})
        self.agent.load_state_dict(state["agent"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.frames = state["frames"]
        carried = None if state["memory"] is None else StreamState(state["memory"].to(self.device))
        self.memory = AgentMemory(carried, state["age"].to(self.device), state["previous"].to(self.device))
        world = {name: x.numpy() if torch.is_tensor(x) else x for name, x in state["world"].items()}
        self.batched_env.load_state_dict(world)
        self.observation, self.starts, self.episode_rewards = (
            state[name].numpy().copy() for name in ("observation", "starts", "rewards")
        )
        self.recent_rewards.extend(state["recent"])
        if state["device"] == self.device.type:
            self.rng.set_state(state["rng"])
        else:  # a generator's state on a CPU does not fit one on a GPU
            self.rng.manual_seed(self.options.seed + self.frames)


def load_checkpoint(path: str) -> dict:
    """Read a checkpoint, its tensors on the CPU."""
    state = load_file(path)
    if not isinstance(state, dict) or not REQUIRED_KEYS <= set(state):
        raise UserError(f"{path}: not a checkpoint of an agent; give a {CHECKPOINT_FILE} of train, or another --out")
    check_parameters(path, state["agent"])
    return state


def check_same_options(saved: dict, current: dict) -> None:
    """Check that training with the current options may resume from a checkpoint."""
    theirs, ours = (_fixed_options(state["options"], state["settings"]) for state in (saved, current))
    for name, value in ours.items():
        if value != theirs.get(name):
            made, given = f"{flag(name)} {theirs.get(name)}", value
            if isinstance(value, bool):  # a pair of options
                made, given = (flag(name if on else f"no_{name}") for on in (not value, value))
            remedy = "give another --out, or the same options"
            raise UserError(f"the checkpoint was made with {made}, not {given}; {remedy}")


def _fixed_options(options: dict, settings: dict) -> dict:
    """The options that must not change between runs, by name. The environment comes first: if it differs, that is the
    difference to report."""
    agent = {name: value for name, value in settings.items() if name not in ("observation", "actions")}
    merged = {"environment": options["environment"], **(options["sizes"] or {}), **agent, **options}
    return {name: value for name, value in merged.items() if name not in ("sizes", "frames")}
