"""What an agent computes, step by step and in blocks, and what it remembers."""

import pytest
import torch

from fb_fairseq.papers.rl.agent import Actor, Agent, AgentMemory, ages
from fb_fairseq.papers.rl.options import AGENTS, AgentOptions

TINY = dict(layers=2, width=12, heads=2, span=7)


@pytest.mark.parametrize("previous_action", [True, False])
@pytest.mark.parametrize("agent", AGENTS)
def test_acting_and_learning_agree(agent, previous_action):
    """Step by step and in blocks: the same logits and values, across ends of episodes and blocks."""
    torch.manual_seed(1)
    T, B = 17, 4
    model = Agent((5, 3), 3, AgentOptions(agent, **TINY, previous_action=previous_action))
    torch.nn.init.normal_(model.policy.weight)
    memory = AgentMemory.initial(B)
    for block in range(3):
        observations = torch.stack([torch.randint(5, (T, B)), torch.randint(3, (T, B))], -1)
        starts = torch.rand(T, B) < 0.1
        actions = torch.randint(3, (T, B))
        starts[0] |= block == 0
        actor, steps = Actor(model, memory), []
        for t in range(T):
            steps.append(actor.step(observations[t], starts[t]))
            actor.previous_B = actions[t]
        logits, values, memory = model(observations, actions, starts, memory)
        torch.testing.assert_close(torch.stack([step[0] for step in steps]), logits.detach(), atol=1e-5, rtol=0)
        torch.testing.assert_close(torch.stack([step[1] for step in steps]), values.detach(), atol=1e-5, rtol=0)
        assert torch.equal(actor.age_B, memory.age_B)


def test_ages():
    starts = torch.tensor([[True, False], [False, False], [True, False]])
    assert ages(starts, torch.tensor([9, 9])).tolist() == [[0, 9], [1, 10], [0, 11], [1, 12]]


@pytest.mark.parametrize("agent", AGENTS)
def test_what_an_agent_remembers(agent):
    """The first observation of this episode, not those of the previous one; a Transformer at most L S steps back."""
    torch.manual_seed(2)
    model = Agent((9,), 3, AgentOptions(agent, layers=2, width=12, heads=2, span=3))
    T = 12
    starts = torch.zeros(T, 1, dtype=torch.bool)
    starts[[0, 4]] = True
    observations = torch.randint(9, (T, 1, 1))
    actions = torch.zeros(T, 1, dtype=torch.long)

    def values(changed):
        other = observations.clone()
        other[changed] = (other[changed] + 1) % 9
        with torch.no_grad():
            return model(other, actions, starts, AgentMemory.initial(1))[1][:, 0]

    same = values([])
    differs = values(2).ne(same)
    assert differs[2:4].all() and not differs[4:].any()
    differs = values(4).ne(same)
    assert differs[4:11].all() and differs[11] == (agent != "transformer")


def test_lstms_have_no_heads():
    """So any width will do."""
    assert Agent((9,), 3, AgentOptions("lstm", width=13, heads=2))
