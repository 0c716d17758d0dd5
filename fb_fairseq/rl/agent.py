"""An agent: what it observes through a stack of layers with memory, to a policy and a value.

It acts step by step (``Actor``) and learns from blocks (``Agent.forward``); both give the same logits.
Shape suffixes: T steps, B environments, K components of an observation, A actions; others see ``fb_fairseq/ops``.
"""

from dataclasses import asdict, dataclass
from typing import NamedTuple, Optional, Sequence, Tuple

import torch
import torch.nn as nn
from torch import Tensor

from fb_fairseq.modules import FeedbackTransformer, RelativeTransformer
from fb_fairseq.modules.lstm import LSTM, LSTMOptions
from fb_fairseq.modules.options import TransformerOptions
from fb_fairseq.modules.state import StreamState

AGENTS = ("feedback", "transformer", "lstm")


@dataclass(frozen=True)
class AgentOptions:
    """
    Args:
        span: how many steps back attention reaches.
        previous_action: the action before is part of what is observed. (Where actions can be chosen freely they are a
            memory outside of the model: not in the corridor.)

    Raises:
        ValueError: an option is out of range.
    """

    agent: str = "feedback"
    layers: int = 2
    width: int = 64
    ffn_width: int = 0  # 0: four times the width
    heads: int = 4
    span: int = 200
    previous_action: bool = True

    def __post_init__(self):
        if self.agent not in AGENTS:
            raise ValueError(f"--agent {self.agent}: unknown, choose of {', '.join(AGENTS)}")
        for name in ("layers", "width", "heads", "span"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} {getattr(self, name)}: give 1 or more")
        if self.ffn_width < 0:
            raise ValueError(f"--ffn-width {self.ffn_width}: give 1 or more, or 0 for four times the width")
        if self.width % self.heads:
            raise ValueError(f"--heads {self.heads}: does not divide --width {self.width}")

    def stack(self) -> nn.Module:
        if self.agent == "lstm":
            return LSTM(LSTMOptions(decoder_layers=self.layers, decoder_embed_dim=self.width))
        options = TransformerOptions(
            decoder_layers=self.layers,
            decoder_embed_dim=self.width,
            decoder_ffn_embed_dim=self.ffn_width or 4 * self.width,
            decoder_attention_heads=self.heads,
            decoder_normalize_before=True,
            attention_span=self.span,
        )
        return (FeedbackTransformer if self.agent == "feedback" else RelativeTransformer)(options)


class AgentMemory(NamedTuple):
    """What B environments carry from block to block.

    state: None at the very beginning.
    age_B: steps so far of each one's episode.
    previous_B: its last action.
    """

    state: Optional[StreamState]
    age_B: Tensor
    previous_B: Tensor

    @staticmethod
    def empty(environments: int, device: Optional[torch.device] = None) -> "AgentMemory":
        zeros = torch.zeros(environments, dtype=torch.long, device=device)
        return AgentMemory(None, zeros, zeros)


def ages(starts_TB: Tensor, age_B: Tensor) -> Tensor:
    """How many steps of its episode came before each step: [T + 1, B], the last for the step after the block."""
    age_TB = [age_B]
    for starts_B in starts_TB:
        age_TB[-1] = age_TB[-1].masked_fill(starts_B, 0)
        age_TB.append(age_TB[-1] + 1)
    return torch.stack(age_TB)


class Agent(nn.Module):
    """
    Args:
        observation: how many values each component of an observation has.
        actions: how many there are.
    """

    def __init__(self, observation: Sequence[int], actions: int, options: AgentOptions):
        super().__init__()
        self.options, self.observation, self.actions = options, tuple(observation), actions
        D = options.width
        first_K = torch.tensor([0, *observation]).cumsum(0)
        self.register_buffer("first_K", first_K[:-1], persistent=False)
        self.embed_observation = nn.Embedding(int(first_K[-1]), D)
        nn.init.normal_(self.embed_observation.weight, std=len(observation) ** -0.5)
        self.embed_action = nn.Embedding(actions + 1, D) if options.previous_action else None  # the last: none yet
        self.stack = options.stack()
        self.policy, self.value = nn.Linear(D, actions), nn.Linear(D, 1)
        nn.init.normal_(self.policy.weight, std=0.01 * D**-0.5)  # at first all actions are about equally likely
        nn.init.zeros_(self.policy.bias)

    def settings(self) -> dict:
        """What an agent has to be made with to load this one's parameters."""
        return {"observation": list(self.observation), "actions": self.actions, **asdict(self.options)}

    def embed(self, observations: Tensor, previous: Tensor, age: Tensor) -> Tensor:
        """Observations [..., K], the actions before and steps so far [...], to [..., D]."""
        x = self.embed_observation(observations + self.first_K).sum(-2)
        if self.embed_action is None:
            return x
        return x + self.embed_action(previous.masked_fill(age == 0, self.actions))

    def heads(self, features: Tensor) -> Tuple[Tensor, Tensor]:
        return self.policy(features), self.value(features).squeeze(-1)

    def forward(
        self, observations_TBK: Tensor, actions_TB: Tensor, starts_TB: Tensor, memory: AgentMemory
    ) -> Tuple[Tensor, Tensor, AgentMemory]:
        """A block of steps.

        Args:
            actions_TB: taken after each observation.
            starts_TB: which steps are the first of an episode.

        Returns:
            Logits of the policy [T, B, A], values [T, B], and the memory after the block.
        """
        age_TB = ages(starts_TB, memory.age_B)
        previous_TB = torch.cat([memory.previous_B[None], actions_TB[:-1]])
        x_TBD = self.embed(observations_TBK, previous_TB, age_TB[:-1])
        features_TBD, state = self.stack.run_block(x_TBD, memory.state, age_TB[:-1])
        logits_TBA, values_TB = self.heads(features_TBD)
        return logits_TBA, values_TB, AgentMemory(state, age_TB[-1], actions_TB[-1])

    def actor(self, memory: AgentMemory) -> "Actor":
        return Actor(self, memory)


class Actor:
    """An agent that acts, step by step from some memory on, without gradients. Its parameters must not change meanwhile."""

    @torch.no_grad()
    def __init__(self, agent: Agent, memory: AgentMemory):
        self.agent = agent
        self.age_B, self.previous_B = memory.age_B, memory.previous_B
        self.ring = agent.stack.ring_after(memory.state)

    @torch.no_grad()
    def step(self, observations_BK: Tensor, starts_B: Tensor) -> Tuple[Tensor, Tensor]:
        """Logits [B, A] and values [B]; then tell what was done with ``acted``."""
        age_B = self.age_B.masked_fill(starts_B, 0)
        self.ring.reset(age_B)
        x_BD = self.agent.embed(observations_BK, self.previous_B, age_B)
        self.age_B = age_B + 1
        return self.agent.heads(self.agent.stack.run_step(x_BD, self.ring))

    def acted(self, actions_B: Tensor) -> None:
        self.previous_B = actions_B
