"""The state of streams between blocks."""

import torch

from fb_fairseq.modules import StreamState


def test_state_is_cut_to_the_span_and_copied():
    old = StreamState.entering(None, 1, 4, torch.zeros(7, 2, 3))
    assert old.memory_KCBD.shape == (1, 0, 2, 3)
    new = old.extended(torch.randn(1, 5, 2, 3, requires_grad=True), 4)
    assert new.memory_KCBD.shape == (1, 4, 2, 3) and not new.memory_KCBD.requires_grad
    assert new.memory_KCBD.untyped_storage().nbytes() == 4 * 2 * 3 * 4  # keeps no larger tensor alive


def test_a_larger_or_smaller_span_is_handled():
    old = StreamState(torch.arange(4.0).view(1, 4, 1, 1))
    x = torch.zeros(2, 1, 1)
    assert StreamState.entering(old, 1, 3, x).memory_KCBD.flatten().tolist() == [1, 2, 3]
    assert StreamState.entering(old, 1, 8, x).memory_KCBD.flatten().tolist() == [0, 1, 2, 3]
