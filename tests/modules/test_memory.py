"""Compositions of the memory: the weights of the embedding and the layers in each."""

import pytest
import torch

from fb_fairseq.modules import TransformerOptions
from fb_fairseq.modules.memory import FeedbackMemory

L = 3


def memory(composition):
    return FeedbackMemory(TransformerOptions(decoder_layers=L, memory_composition=composition))


def test_weighted_is_a_softmax_over_embedding_and_layers():
    m = memory("weighted")
    assert m.layer_weights.shape == (L + 1,) and m.memories == 1
    torch.testing.assert_close(m.mix(), torch.full((1, L + 1), 0.25))
    m.layer_weights.data = torch.tensor([0.0, 1.0, 2.0, -1.0])
    torch.testing.assert_close(m.mix()[0], torch.tensor([0.0, 1.0, 2.0, -1.0]).softmax(0))


@pytest.mark.parametrize(
    "composition,rows",
    [
        ("average", [[0.25] * 4]),
        ("layer:0", [[1, 0, 0, 0]]),
        ("layer:3", [[0, 0, 0, 1]]),
        ("previous", [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]),
        ("same-and-lower", [[0.5, 0.5, 0, 0], [1 / 3] * 3 + [0], [0.25] * 4]),
    ],
)
def test_other_compositions(composition, rows):
    m = memory(composition)
    torch.testing.assert_close(m.mix().detach(), torch.tensor(rows, dtype=torch.float))
    assert m.memories == len(rows)


def test_pruning_selects_the_kept_layers_weights():
    assert memory("weighted").keep_layers(torch.arange(4.0), [0, 2]).tolist() == [0, 1, 3]
    rows = torch.arange(12.0).view(3, 4)
    assert memory("same-and-lower").keep_layers(rows, [0, 2]).tolist() == [[0, 1, 3], [8, 9, 11]]
