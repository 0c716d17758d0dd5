"""Agents: a stack of layers with memory, from observations to a policy and a value. An agent acts step by step
(``Actor``) and learns from blocks of steps (``Agent.forward``); both compute the same logits. Shape suffixes: B
environments (streams), T steps of a block, O components of an observation, A actions; the others are those of
``fb_fairseq/ops/__init__.py``.
"""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import accumulate
from typing import NamedTuple

import torch
import torch.nn as nn
from torch import Tensor

from fb_fairseq.modules import FeedbackTransformer, RelativeTransformer
from fb_fairseq.modules.interface import StreamState
from fb_fairseq.modules.lstm import LSTM, LSTMOptions
from fb_fairseq.modules.options import TransformerOptions
from fb_fairseq.papers.rl.options import AgentOptions

INITIAL_LOGIT_SCALE = 0.01  # so small that all actions are about equally likely at first


def build_stack(options: AgentOptions) -> nn.Module:
    """The layers of an agent."""
    if options.agent == "lstm":
        return LSTM(LSTMOptions(decoder_layers=options.layers, decoder_embed_dim=options.width))
    transformer_options = TransformerOptions(
        decoder_layers=options.layers,
        decoder_embed_dim=options.width,
        decoder_ffn_embed_dim=options.ffn_width or 4 * options.width,
        decoder_attention_heads=options.heads,
        decoder_normalize_before=True,
        attention_span=options.span,
    )
    return (FeedbackTransformer if options.agent == "feedback" else RelativeTransformer)(transformer_options)


class AgentMemory(NamedTuple):
    """Memory that B environments carry from block to block.

    Attributes:
        state: state of the stack; None before the first block.
        age_B: number of steps since the start of each episode.
        previous_B: the previous action in each environment.
    """

    state: StreamState | None
    age_B: Tensor
    previous_B: Tensor

    @staticmethod
    def initial(environments: int, device: torch.device | None = None) -> "AgentMemory":
        """The memory before the first block."""
        zeros = torch.zeros(environments, dtype=torch.long, device=device)
        return AgentMemory(None, zeros, zeros)


def ages(starts_TB: Tensor, age_B: Tensor) -> Tensor:
    """Number of steps since the start of the episode.

    Args:
        starts_TB: whether a step is the first of an episode.
        age_B: the number before the block.

    Returns:
        That before each step of the block, and after the last one: [T + 1, B].
    """
    age_TB = [age_B]
    for starts_B in starts_TB:
        age_TB[-1] = age_TB[-1].masked_fill(starts_B, 0)
        age_TB.append(age_TB[-1] + 1)
    return torch.stack(age_TB)


class Agent(nn.Module):
    """A stack of layers with a policy and a value.

    Args:
        observation_sizes: number of possible values of each component of an observation.
        num_actions: number of actions A.
        options: the architecture.
    """

    def __init__(self, observation_sizes: Sequence[int], num_actions: int, options: AgentOptions):
        super().__init__()
        self.options = options
        self.observation_sizes = tuple(observation_sizes)
        self.num_actions = num_actions
        D = options.width
        # One embedding table for all components; each has its own range of rows, which starts at its offset.
        offsets = [0, *accumulate(observation_sizes)]
        self.register_buffer("offset_O", torch.tensor(offsets[:-1]), persistent=False)
        self.embed_observation = nn.Embedding(offsets[-1], D)
        nn.init.normal_(self.embed_observation.weight, std=len(observation_sizes) ** -0.5)
        # The last row stands for "no previous action", at the first step of an episode.
        self.embed_action = nn.Embedding(num_actions + 1, D) if options.previous_action else None
        self.stack = build_stack(options)
        self.policy = nn.Linear(D, num_actions)
        self.value = nn.Linear(D, 1)
        nn.init.normal_(self.policy.weight, std=INITIAL_LOGIT_SCALE * D**-0.5)
        nn.init.zeros_(self.policy.bias)

    def settings(self) -> dict:
        """The constructor's arguments as plain values, for a checkpoint."""
        return {"observation": list(self.observation_sizes), "actions": self.num_actions, **asdict(self.options)}

    @staticmethod
    def from_settings(settings: dict) -> "Agent":
        """A new agent with the settings of another."""
        options = dict(settings)
        return Agent(options.pop("observation"), options.pop("actions"), AgentOptions(**options))

    def embed(self, observations: Tensor, previous: Tensor, age: Tensor) -> Tensor:
        """Embed steps.

        Args:
            observations: [..., O].
            previous: the previous actions [...].
            age: numbers of steps since the start of the episode [...]; at 0 there is no previous action.

        Returns:
            Embeddings [..., D].
        """
        x = self.embed_observation(observations + self.offset_O).sum(-2)
        if self.embed_action is None:
            return x
        return x + self.embed_action(previous.masked_fill(age == 0, self.num_actions))

    def policy_and_value(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [..., A] of the policy and values [...], from the stack's outputs [..., D]."""
        return self.policy(features), self.value(features).squeeze(-1)

    def forward(
        self, observations_TBO: Tensor, actions_TB: Tensor, starts_TB: Tensor, memory: AgentMemory
    ) -> tuple[Tensor, Tensor, AgentMemory]:
        """Run a block of steps.

        Args:
            observations_TBO: what the agent sees before each action.
            actions_TB: the actions that were taken.
            starts_TB: whether a step is the first of an episode.
            memory: that before the block.

        Returns:
            The policy's logits [T, B, A], values [T, B], and the memory after the block.
        """
        age_TB = ages(starts_TB, memory.age_B)
        previous_TB = torch.cat([memory.previous_B[None], actions_TB[:-1]])
        x_TBD = self.embed(observations_TBO, previous_TB, age_TB[:-1])
        features_TBD, state = self.stack.run_block(x_TBD, memory.state, age_TB[:-1])
        logits_TBA, values_TB = self.policy_and_value(features_TBD)
        return logits_TBA, values_TB, AgentMemory(state, age_TB[-1], actions_TB[-1])


class Actor:
    """Runs an agent step by step, without gradients.

    Args:
        agent: the agent. Its parameters must not change meanwhile.
        memory: where it goes on.

    Attributes:
        age_B: number of steps since the start of each episode.
        previous_B: the previous action in each environment, which the next step sees: to be set after each ``step``,
            because the caller chooses.
    """

    @torch.no_grad()
    def __init__(self, agent: Agent, memory: AgentMemory):
        self.agent = agent
        self.age_B = memory.age_B
        self.previous_B = memory.previous_B
        self.ring = agent.stack.ring_after(memory.state)

    @torch.no_grad()
    def step(self, observations_BO: Tensor, starts_B: Tensor) -> tuple[Tensor, Tensor]:
        """Run one step. It does not choose actions: see ``previous_B``.

        Args:
            observations_BO: what the agent sees.
            starts_B: whether the step is the first of an episode.

        Returns:
            Logits of the policy [B, A], and values [B].
        """
        age_B = self.age_B.masked_fill(starts_B, 0)
        self.ring.reset(age_B)
        x_BD = self.agent.embed(observations_BO, self.previous_B, age_B)
        self.age_B = age_B + 1
        return self.agent.policy_and_value(self.agent.stack.run_step(x_BD, self.ring))
