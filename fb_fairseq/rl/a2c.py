"""Training: advantage actor-critic (A2C, Mnih et al. 2016), in blocks of T steps of B environments.

A block is acted out step by step, then run once more at once, with gradients. Its returns are discounted sums of rewards up
to the end of the episode, or to the end of the block, from where the value goes on. Memory is carried from block to block as
in the language models; an episode's end resets it. Coming to the limit of its steps ends an episode like any other end.
"""

import inspect
import json
import os
from collections import deque
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Callable, Dict, List, Optional

import gymnasium
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fb_fairseq.modules.state import StreamState
from fb_fairseq.rl.agent import Agent, AgentMemory, AgentOptions
from fb_fairseq.rl.envs import WORLDS
from fb_fairseq.rl.envs.gymnasium_api import NAMES
from fb_fairseq.rl.plot import entries

SAVE_SECONDS = 120
RECENT = 500  # "the reward is reported averaged over the last 500 episodes" (v1 §4.4)


@dataclass(frozen=True)
class TrainingOptions:
    """
    Args:
        environment: a name in ``NAMES``.
        sizes: arguments of the environment.
        frames: steps of all environments together.
        block: steps of a block (the papers' BPTT length).

    Raises:
        ValueError: an option is out of range.
    """

    environment: str = "corridor"
    sizes: Optional[Dict[str, int]] = None
    frames: int = 1_000_000
    environments: int = 64
    block: int = 100
    optimizer: str = "adam"
    lr: float = 3e-4
    rmsprop_eps: float = 0.01
    clip_norm: float = 0.5
    discount: float = 0.99
    entropy_cost: float = 5e-4
    value_cost: float = 0.5
    seed: int = 1

    def __post_init__(self):
        for name in ("frames", "environments", "block"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} {getattr(self, name)}: give 1 or more")
        if self.seed < 0:
            raise ValueError(f"--seed {self.seed}: give 0 or more")
        for name in ("lr", "rmsprop_eps", "clip_norm"):
            if getattr(self, name) <= 0:
                raise ValueError(f"--{name.replace('_', '-')} {getattr(self, name)}: give more than 0")
        if not 0 <= self.discount <= 1:
            raise ValueError(f"--discount {self.discount}: give 0 to 1")
        if self.optimizer not in ("adam", "rmsprop"):
            raise ValueError(f"--optimizer {self.optimizer}: unknown, choose of adam, rmsprop")


def make_environments(environment: str, number: int, sizes: Optional[Dict[str, int]] = None, **options):
    """
    Raises:
        ValueError: there is no such environment, or it has no such sizes.
    """
    if environment not in NAMES:
        raise ValueError(f"--environment {environment}: unknown, choose of {', '.join(NAMES)}")
    known = inspect.signature(WORLDS[environment]).parameters
    for name in sizes or {}:
        if name not in known:
            raise ValueError(f"--{name}: --environment {environment} has none")
    return gymnasium.make_vec(
        NAMES[environment], number, vectorization_mode="vector_entry_point", **options, **(sizes or {})
    )


def returns_of(rewards_TB: Tensor, ended_TB: Tensor, next_value_B: Tensor, discount: float) -> Tensor:
    """Discounted sums of the rewards from each step on, [T, B]; after the block its value stands for the rest."""
    returns, following = [], next_value_B
    for rewards_B, ended_B in zip(rewards_TB.flip(0), ended_TB.flip(0)):
        following = rewards_B + discount * following.masked_fill(ended_B, 0)
        returns.append(following)
    return torch.stack(returns[::-1])


def loss_of(options: TrainingOptions, logits_TBA: Tensor, values_TB: Tensor, actions_TB: Tensor, returns_TB: Tensor):
    """The loss, and its parts to be logged."""
    log_p_TBA = F.log_softmax(logits_TBA, -1)
    log_p_TB = log_p_TBA.gather(-1, actions_TB[..., None]).squeeze(-1)
    policy = -(log_p_TB * (returns_TB - values_TB).detach()).mean()
    value = (returns_TB - values_TB).square().mean()
    entropy = -(log_p_TBA.exp() * log_p_TBA).sum(-1).mean()
    loss = policy + options.value_cost * value - options.entropy_cost * entropy
    return loss, {"policy_loss": policy.item(), "value_loss": value.item(), "entropy": entropy.item()}


class Trainer:
    """Trains an agent; all that its future depends on is in ``state``.

    Raises:
        ValueError: the environment is unknown, or has no such sizes.
    """

    def __init__(self, options: TrainingOptions, agent: AgentOptions, device: torch.device = torch.device("cpu")):
        self.options, self.device = options, device
        self.environments = make_environments(options.environment, options.environments, options.sizes)
        self.rng = torch.Generator(device).manual_seed(options.seed)
        self.world = self.environments.unwrapped.world
        with torch.random.fork_rng():
            torch.manual_seed(options.seed)
            self.agent = Agent(self.world.observation, len(self.world.actions), agent).to(device)
        if options.optimizer == "adam":
            self.optimizer = torch.optim.Adam(self.agent.parameters(), options.lr)
        else:
            self.optimizer = torch.optim.RMSprop(self.agent.parameters(), options.lr, eps=options.rmsprop_eps)
        self.memory = AgentMemory.empty(options.environments, device)
        self.observation, _ = self.environments.reset(seed=options.seed)
        self.starts = np.ones(options.environments, bool)
        self.rewards = np.zeros(options.environments)  # of each running episode so far
        self.recent: deque = deque(maxlen=RECENT)
        self.frames = 0

    def block(self) -> Dict[str, float]:
        """Act a block out, and learn from it; what is to be logged."""
        observations, starts, actions, rewards, ended = [], [], [], [], []
        actor = self.agent.actor(self.memory)
        for _ in range(self.options.block):
            observations.append(self._tensor(self.observation))
            starts.append(self._tensor(self.starts))
            logits_BA, _ = actor.step(observations[-1], starts[-1])
            action = torch.multinomial(logits_BA.softmax(-1), 1, generator=self.rng).squeeze(-1)
            actor.acted(action)
            actions.append(action)
            self.observation, reward, terminated, truncated, _ = self.environments.step(action.cpu().numpy())
            self.starts = terminated | truncated
            rewards.append(self._tensor(reward))
            ended.append(self._tensor(self.starts))
            self.rewards += reward
            self.recent.extend(self.rewards[self.starts].tolist())
            self.rewards[self.starts] = 0
        _, next_value_B = actor.step(self._tensor(self.observation), self._tensor(self.starts))
        returns_TB = returns_of(torch.stack(rewards), torch.stack(ended), next_value_B, self.options.discount)
        actions_TB = torch.stack(actions)
        logits_TBA, values_TB, memory = self.agent(
            torch.stack(observations), actions_TB, torch.stack(starts), self.memory
        )
        loss, logged = loss_of(self.options, logits_TBA, values_TB, actions_TB, returns_TB)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.agent.parameters(), self.options.clip_norm)
        self.optimizer.step()
        self.memory = memory
        self.frames += actions_TB.numel()
        return {**logged, "gnorm": norm.item()}

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.as_tensor(array, device=self.device)

    def state(self) -> dict:
        """Plain values and tensors, for a checkpoint."""
        world = self.world.state()
        return {
            "settings": self.agent.settings(),
            "options": asdict(self.options),
            "agent": self.agent.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "frames": self.frames,
            "memory": None if self.memory.state is None else self.memory.state.memory_KCBD,
            "age": self.memory.age_B,
            "previous": self.memory.previous_B,
            "world": {name: torch.from_numpy(x) if isinstance(x, np.ndarray) else x for name, x in world.items()},
            "observation": torch.from_numpy(self.observation),
            "starts": torch.from_numpy(self.starts),
            "rewards": torch.from_numpy(self.rewards),
            "recent": list(self.recent),
            "rng": self.rng.get_state(),
            "device": self.device.type,
        }

    def load_state(self, state: dict) -> None:
        """
        Raises:
            ValueError: the checkpoint is of another agent, or of other options but for the frames.
        """
        ours = named_options(asdict(self.options), self.agent.settings())
        theirs = named_options(state["options"], state["settings"])
        for name in ours:
            if ours[name] != theirs.get(name):
                raise ValueError(
                    f"the checkpoint was made with --{name.replace('_', '-')} {theirs.get(name)}, not {ours[name]}; "
                    "give another --out, or the same options"
                )
        self.agent.load_state_dict(state["agent"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.frames = state["frames"]
        carried = None if state["memory"] is None else StreamState(state["memory"].to(self.device))
        self.memory = AgentMemory(carried, state["age"].to(self.device), state["previous"].to(self.device))
        self.world.load_state({name: x.numpy() if torch.is_tensor(x) else x for name, x in state["world"].items()})
        self.observation, self.starts, self.rewards = (
            state[name].numpy().copy() for name in ("observation", "starts", "rewards")
        )
        self.recent.extend(state["recent"])
        if state["device"] == self.device.type:
            self.rng.set_state(state["rng"])
        else:  # the states of generators of a CPU and of a GPU are not the same thing
            self.rng.manual_seed(self.options.seed + self.frames)


def named_options(options: dict, settings: dict) -> dict:
    """The options that have to be the same to go on, by their names on the command line; the environment first."""
    agent = {name: value for name, value in settings.items() if name not in ("observation", "actions")}
    names = {"environment": options["environment"], **(options["sizes"] or {}), **agent, **options}
    return {name: value for name, value in names.items() if name not in ("sizes", "frames")}


def save(state: dict, path: str) -> None:
    """The whole file, or the old one."""
    torch.save(state, path + ".tmp")
    os.replace(path + ".tmp", path)


def load(path: str) -> dict:
    """A checkpoint, on the CPU.

    Raises:
        ValueError: the file is something else.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # whatever a file of another kind makes of torch's reader
        state = None
    if not isinstance(state, dict) or not {"settings", "options", "agent", "world"} <= set(state):
        raise ValueError(f"{path}: no checkpoint of an agent; give a checkpoint.pt of train, or another --out")
    return state


def train(
    options: TrainingOptions,
    agent: AgentOptions,
    out: str,
    device: torch.device,
    log_interval: int = 20,
    save_interval: int = 200,
    loggers: List[Callable[[dict], None]] = (),
) -> Trainer:
    """Train, or go on from ``out``/checkpoint.pt, to ``out``: the checkpoint, and log.jsonl with a line every
    ``log_interval`` blocks. The checkpoint is written every ``save_interval`` blocks, or every two minutes.

    Raises:
        ValueError: see ``Trainer``; the checkpoint there is of another agent, or of other options.
    """
    trainer = Trainer(options, agent, device)
    checkpoint, log = os.path.join(out, "checkpoint.pt"), os.path.join(out, "log.jsonl")
    if os.path.exists(checkpoint):
        trainer.load_state(load(checkpoint))
    os.makedirs(out, exist_ok=True)
    cut_log(log, trainer.frames)
    began, frames = perf_counter(), trainer.frames
    saved = perf_counter()
    while trainer.frames < options.frames:
        logged = trainer.block()
        blocks = trainer.frames // (options.environments * options.block)
        done = trainer.frames >= options.frames
        if blocks % log_interval == 0 or done:
            seconds = perf_counter() - began
            entry = {"frames": trainer.frames, "fps": round((trainer.frames - frames) / seconds, 1)}
            if trainer.recent:
                entry.update(
                    reward=float(np.mean(trainer.recent)), success=float(np.mean(np.array(trainer.recent) > 0))
                )
            entry.update({name: round(value, 5) for name, value in logged.items()})
            with open(log, "a") as file:
                file.write(json.dumps(entry) + "\n")
            for logger in loggers:
                logger(entry)
            began, frames = perf_counter(), trainer.frames
        if blocks % save_interval == 0 or done or perf_counter() - saved > SAVE_SECONDS:
            save(trainer.state(), checkpoint)
            saved = perf_counter()
    return trainer


def cut_log(path: str, frames: int) -> None:
    """Leave away what was logged after the checkpoint that training goes on from."""
    kept = [entry for entry in entries(path) if entry["frames"] <= frames] if os.path.exists(path) else []
    with open(path + ".tmp", "w") as file:
        file.writelines(json.dumps(entry) + "\n" for entry in kept)
    os.replace(path + ".tmp", path)
