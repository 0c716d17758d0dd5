"""An agent that acts in parallel environments.

Shape suffixes: B environments, O components of an observation, A actions.
"""

from collections import deque
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fb_fairseq.errors import UserError
from fb_fairseq.papers.rl.agent import Actor
from fb_fairseq.papers.rl.envs import make_env
from fb_fairseq.papers.rl.options import TrainingOptions

RECENT_EPISODES = 500  # "the reward is reported averaged over the last 500 episodes" (v1 §4.4)


class Step(NamedTuple):
    """A step in B environments, or the T steps of a block.

    Attributes:
        observation: the agent's, before its action [B, O] or [T, B, O].
        starts: whether the step is the first of an episode; like all that follow, [B] or [T, B].
        action: the agent's.
        reward: that followed.
        ended: whether the step ended its episode.
    """

    observation: Tensor
    starts: Tensor
    action: Tensor
    reward: Tensor
    ended: Tensor


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
        episode_rewards: the sum of rewards so far in each running episode [B].
        recent_rewards: the sums of the last ``RECENT_EPISODES`` episodes that have ended.
    """

    def __init__(self, options: TrainingOptions, number: int, seed: int, device: torch.device):
        self.env = make_env(options.environment, number, options.sizes)
        self.env.rng = np.random.default_rng(seed)
        self.env.reset(np.arange(number))
        self.device = device
        self.rng = torch.Generator(device).manual_seed(seed)
        self.observation = self.env.observe()
        self.starts = np.ones(number, bool)
        self.episode_rewards = np.zeros(number)
        self.recent_rewards: deque[float] = deque(maxlen=RECENT_EPISODES)

    def seen(self) -> tuple[Tensor, Tensor]:
        """The next step's observations [B, O], and whether it is the first of an episode [B]."""
        return torch.as_tensor(self.observation, device=self.device), torch.as_tensor(self.starts, device=self.device)

    def step(self, actor: Actor) -> Step:
        """Act once in each environment. Episodes that end are followed by new ones.

        Args:
            actor: the agent, from whose policy actions are sampled.
        """
        observation_BO, starts_B = self.seen()
        logits_BA, _ = actor.step(observation_BO, starts_B)
        policy_BA = logits_BA.softmax(-1)
        if not torch.isfinite(policy_BA).all():
            raise UserError("the agent's training has diverged: its policy is not a number; train with a lower --lr")
        action_B = torch.multinomial(policy_BA, 1, generator=self.rng).squeeze(-1)
        actor.previous_B = action_B
        rewards, ended = self.env.step(action_B.cpu().numpy())
        self.episode_rewards += rewards
        self.recent_rewards.extend(self.episode_rewards[ended].tolist())
        self.episode_rewards[ended] = 0
        self.env.reset(np.flatnonzero(ended))
        self.observation = self.env.observe()
        self.starts = ended
        rewards_B, ended_B = (torch.as_tensor(x, device=self.device) for x in (rewards, ended))
        return Step(observation_BO, starts_B, action_B, rewards_B, ended_B)

    def state_dict(self) -> dict:
        """The state, as plain values and tensors for a checkpoint."""
        env = self.env.state_dict()
        return {
            # (the state of the environments; the key is that of the first version)
            "world": {name: torch.from_numpy(x) if isinstance(x, np.ndarray) else x for name, x in env.items()},
            "observation": torch.from_numpy(self.observation),
            "starts": torch.from_numpy(self.starts),
            "rewards": torch.from_numpy(self.episode_rewards),
            "recent": list(self.recent_rewards),
            "rng": self.rng.get_state(),
            "device": self.device.type,
        }

    def load_state_dict(self, state: dict, other_seed: int) -> None:
        """Go on from a state.

        Args:
            state: that ``state_dict`` has returned; other entries are ignored.
            other_seed: of the actions if the state is that of another kind of device: a generator's state on a CPU
                does not fit one on a GPU.
        """
        self.env.load_state_dict({name: x.numpy() if torch.is_tensor(x) else x for name, x in state["world"].items()})
        self.observation = state["observation"].numpy().copy()
        self.starts = state["starts"].numpy().copy()
        self.episode_rewards = state["rewards"].numpy().copy()
        self.recent_rewards = deque(state["recent"], RECENT_EPISODES)
        if state["device"] == self.device.type:
            self.rng.set_state(state["rng"])
        else:
            self.rng.manual_seed(other_seed)
