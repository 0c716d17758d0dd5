"""Memories are cut and copied."""

import copy
import io
import pickle

import pytest
import torch

from fb_fairseq.modules import AllAttention, FeedbackTransformer, RelativeTransformer, StreamState
from tests.modules.options import random_stack


def test_state_is_cut_to_the_span_and_copied():
    old = StreamState.entering(None, 1, 4, torch.zeros(7, 2, 3))
    assert old.memory_KCBD.shape == (1, 0, 2, 3)
    new = old.extended(torch.randn(1, 5, 2, 3, requires_grad=True), 4)
    assert new.memory_KCBD.shape == (1, 4, 2, 3) and not new.memory_KCBD.requires_grad
    assert new.memory_KCBD.untyped_storage().nbytes() == 4 * 2 * 3 * 4  # keeps no larger tensor alive


def test_a_larger_or_smaller_span_keeps_the_newest_steps():
    old = StreamState(torch.arange(4.0).view(1, 4, 1, 1))
    x = torch.zeros(2, 1, 1)
    assert StreamState.entering(old, 1, 3, x).memory_KCBD.flatten().tolist() == [1, 2, 3]
    assert StreamState.entering(old, 1, 8, x).memory_KCBD.flatten().tolist() == [0, 1, 2, 3]


def saved(ring):
    """A memory as it is after ``torch.save`` and ``torch.load``."""
    file = io.BytesIO()
    torch.save(ring, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda ring: pickle.loads(pickle.dumps(ring)), saved])
@pytest.mark.parametrize("stack", [FeedbackTransformer, RelativeTransformer, AllAttention])
@pytest.mark.parametrize("seed", range(3))
@torch.no_grad()
def test_copies_go_on(stack, seed, copied):
    """As the original, and apart from it, after steps in which streams were reordered."""
    model = random_stack(stack, seed).eval()
    rings = [model.new_ring(), model.new_ring()]
    x_TBD = torch.randn(12, 3, model.options.decoder_embed_dim)
    for t, x_BD in enumerate(x_TBD[:6]):
        for ring in rings:
            model.run_step(x_BD, ring)
            if t == 4:
                ring.reorder(torch.tensor([2, 0, 0]))
    rings.append(copied(rings[0]))
    for x_BD in x_TBD[6:]:
        first, *others = (model.run_step(x_BD, ring) for ring in rings)
        for other in others:
            torch.testing.assert_close(other, first, atol=1e-5, rtol=1e-5)
