"""The trainer: collects blocks of T steps in B environments, and updates the agent after each block.

The loop around it is in ``runs.py``.
"""

from dataclasses import asdict

import torch

from fb_fairseq.modules.interface import StreamState
from fb_fairseq.papers.rl.a2c import a2c_loss, discounted_returns
from fb_fairseq.papers.rl.agent import Actor, Agent, AgentMemory
from fb_fairseq.papers.rl.options import AgentOptions, TrainingOptions
from fb_fairseq.papers.rl.play import Play, Step


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
        self.frames = 0

    def train_block(self) -> None:
        """Collect a block, take an optimizer step on it, and carry the memory to its end."""
        actor = Actor(self.agent, self.memory)
        steps = [self.play.step(actor) for _ in range(self.options.block)]
        block = Step(*map(torch.stack, zip(*steps)))
        _, next_value_B = actor.step(*self.play.seen())
        returns_TB = discounted_returns(block.reward, block.ended, next_value_B, self.options.discount)
        logits_TBA, values_TB, memory = self.agent(block.observation, block.action, block.starts, self.memory)
        loss = a2c_loss(self.options, logits_TBA, values_TB, block.action, returns_TB)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.agent.parameters(), self.options.clip_norm)
        self.optimizer.step()
        self.memory = memory
        self.frames += block.action.numel()

    def state_dict(self) -> dict:
        """Everything that further training depends on, as plain values and tensors for a checkpoint."""
        return {
            "settings": self.agent.settings(),
            "options": asdict(self.options),
            "agent": self.agent.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "frames": self.frames,
            "memory": None if self.memory.state is None else self.memory.state.memory_KCBD,
            "age": self.memory.age_B,
            "previous": self.memory.previous_B,
            **self.play.state_dict(),
        }

    def load_state_dict(self, state: dict) -> None:
        """Resume from a checkpoint."""
        self.agent.load_state_dict(state["agent"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.frames = state["frames"]
        carried = None if state["memory"] is None else StreamState(state["memory"].to(self.device))
        self.memory = AgentMemory(carried, state["age"].to(self.device), state["previous"].to(self.device))
        self.play.load_state_dict(state, other_seed=self.options.seed + self.frames)
