"""Returns and the loss by hand; and training that resumes from its state equals training without a break."""

import math

import pytest
import torch

from fb_fairseq.papers.rl.a2c import a2c_loss, discounted_returns
from fb_fairseq.papers.rl.options import AGENTS, AgentOptions, TrainingOptions
from fb_fairseq.papers.rl.trainer import Trainer

# The keys of a checkpoint, as in all versions: training resumes from those of earlier ones.
STATE = {
    "settings",
    "options",
    "agent",
    "optimizer",
    "frames",
    "memory",
    "age",
    "previous",
    "world",
    "observation",
    "starts",
    "rewards",
    "recent",
    "rng",
    "device",
}


def test_returns_by_hand():
    rewards = torch.tensor([[1.0], [0.0], [2.0]])
    ended = torch.tensor([[False], [True], [False]])
    returns = discounted_returns(rewards, ended, torch.tensor([10.0]), 0.5)
    assert returns.tolist() == [[1.0], [0.0], [7.0]]


def test_loss_by_hand():
    """One step, two equally probable actions, the first was taken; advantage 3."""
    options = TrainingOptions(entropy_cost=0.1, value_cost=0.5)
    logits = torch.zeros(1, 1, 2, requires_grad=True)
    values = torch.tensor([[1.0]], requires_grad=True)
    loss = a2c_loss(options, logits, values, torch.tensor([[0]]), torch.tensor([[4.0]]))
    expected = 3 * math.log(2) + 0.5 * 9 - 0.1 * math.log(2)
    assert loss.item() == pytest.approx(expected)
    loss.backward()
    assert values.grad.item() == pytest.approx(0.5 * 2 * -3), "no gradient through the advantage"
    assert logits.grad.flatten().tolist() == pytest.approx([-1.5, 1.5])


@pytest.mark.parametrize("agent", AGENTS)
def test_trainer_resumes(agent):
    """Ten blocks, or five and, from the state, five more: the same parameters."""
    options = TrainingOptions("maze", {"size": 5, "limit": 13}, environments=3, block=8, lr=0.01, seed=4)
    architecture = AgentOptions(agent, layers=2, width=12, heads=2, span=7)
    whole = Trainer(options, architecture)
    first = Trainer(options, architecture)
    second = Trainer(options, architecture)
    for _ in range(5):
        first.train_block()
    assert first.state_dict().keys() == STATE
    second.load_state_dict(first.state_dict())
    for _ in range(10):
        whole.train_block()
    for _ in range(5):
        second.train_block()
    torch.testing.assert_close(whole.agent.state_dict(), second.agent.state_dict(), atol=0, rtol=0)
    assert whole.frames == second.frames == 240 and whole.play.recent_rewards == second.play.recent_rewards
