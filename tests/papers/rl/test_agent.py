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
        actor = Actor(model, memory)
        acted = []
        for t in range(T):
            acted.append(actor.step(observations[t], starts[t]))
            actor.previous_B = actions[t]
        *learned, memory = model(observations, actions, starts, memory)
        torch.testing.assert_close([*map(torch.stack, zip(*acted))], learned, atol=1e-5, rtol=0)
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

    def values(seen):
        with torch.no_grad():
            return model(seen, actions, starts, AgentMemory.initial(1))[1][:, 0]

    def depends_on(step):
        """Whether each step's value depends on what was seen at this one."""
        other = observations.clone()
        other[step] = (other[step] + 1) % 9
        return values(other).ne(values(observations))

    depends = depends_on(2)
    assert depends[2:4].all() and not depends[4:].any()
    depends = depends_on(4)
    assert depends[4:11].all() and depends[11] == (agent != "transformer"), "L S = 6 steps back"


def test_initialisation():
    """All actions are about equally likely at first; sums of embeddings have variance 1."""
    torch.manual_seed(1)
    agent = Agent([400, 600], 300, AgentOptions(width=100, heads=2))
    assert agent.policy.weight.std().item() == pytest.approx(0.01 / 10, rel=0.05) and not agent.policy.bias.any()
    assert agent.embed_observation.weight.std().item() == pytest.approx(0.5**0.5, rel=0.05)


def test_lstms_have_no_heads():
    """Any width will do, also one that the number of heads does not divide."""
    assert Agent((9,), 3, AgentOptions("lstm", width=13, heads=2))
