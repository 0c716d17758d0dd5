"""Compositions of the memory: the weights of the embedding and the layers in each."""

import dataclasses

import pytest
import torch

from fb_fairseq.errors import UserError
from fb_fairseq.modules import FeedbackTransformer, TransformerOptions
from fb_fairseq.modules.memory import COMPOSITIONS, Composition, FeedbackMemory
from tests.modules.options import random_options

L = 3


def memory(composition):
    return FeedbackMemory(TransformerOptions(decoder_layers=L, memory_composition=composition))


def test_weighted_is_a_softmax_over_embedding_and_layers():
    m = memory("weighted")
    m.layer_weights.data = torch.tensor([0.0, 1.0, 2.0, -1.0])
    torch.testing.assert_close(m.mix()[0], torch.tensor([0.0, 1.0, 2.0, -1.0]).softmax(0))


@pytest.mark.parametrize(
    "composition,rows",
    [
        ("weighted", [[0.25] * 4]),
        ("average", [[0.25] * 4]),
        ("layer:0", [[1, 0, 0, 0]]),
        ("layer:3", [[0, 0, 0, 1]]),
        ("same", [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]),
        ("previous", [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]),
        ("same-and-lower", [[0.5, 0.5, 0, 0], [1 / 3] * 3 + [0], [0.25] * 4]),
    ],
)
def test_other_compositions(composition, rows):
    m = memory(composition)
    torch.testing.assert_close(m.mix().detach(), torch.tensor(rows, dtype=torch.float))
    assert m.memories == len(rows)


def embedding_and_top(L, _, device):
    return torch.eye(L + 1, device=device)[[0, -1]].sum(0)


def test_one_entry_adds_a_composition(monkeypatch):
    """Options check it, and a model trains with it."""
    ends = Composition("the embedding and the top layer", embedding_and_top, learned=True)
    monkeypatch.setitem(COMPOSITIONS, "ends", ends)
    options = random_options(1, memory_composition="ends", adaptive_span=False)
    both = [dataclasses.replace(options, step_loop=name) for name in ("auto", "reference")]
    model, plain = (FeedbackTransformer(each).double() for each in both)
    plain.load_state_dict(model.state_dict())
    x_TBD = torch.randn(4, 2, options.decoder_embed_dim, dtype=torch.double)
    for each in (model, plain):
        torch.manual_seed(2)
        each(x_TBD)[0].square().sum().backward()
    torch.testing.assert_close(model.memory.layer_weights.grad, plain.memory.layer_weights.grad, atol=1e-10, rtol=1e-10)
    assert model.memory.layer_weights.grad.any() and model.memory.memories == 1
    with pytest.raises(UserError, match="unknown; choose from weighted, average, layer:<l>, .*, ends"):
        random_options(1, memory_composition="both")
