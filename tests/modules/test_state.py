"""The store keeps the state before a block until the next one is read."""

import torch

from fb_fairseq.modules import StreamState
from fb_fairseq.streams.state import BlockPlace, StateStore


def place(store, offset, *cohorts):
    return BlockPlace(store, "train", 1, cohorts or (0,), offset)


def state(position):
    return StreamState(torch.full((1, 2, 1, 1), float(position)))


def test_a_block_run_twice_starts_twice_from_the_same_state():
    store = StateStore()
    assert place(store, 0).read() is None
    place(store, 0).write(state(4), 4)
    place(store, 0).write(state(4), 4)  # run again
    assert place(store, 4).read().memory_KCBD.max() == 4
    place(store, 4).write(state(8), 4)
    assert place(store, 4).read().memory_KCBD.max() == 4  # run again, after it was written
    assert place(store, 8).read().memory_KCBD.max() == 8
    assert place(store, 4).read() is None  # passed
    assert place(store, 8, 1).read() is None  # other streams
    assert list(store.at({0: 8, 1: 8})) == [0]


def test_cohorts_part_and_carry_on_alone():
    store = StateStore()
    rows = StreamState(torch.arange(6.0).view(1, 1, 6, 1))
    place(store, 0, 2, 5, 8).write(rows, 4)
    assert place(store, 4, 2, 5, 8).read().memory_KCBD.flatten().tolist() == [0, 1, 2, 3, 4, 5]
    assert place(store, 4, 5).read().memory_KCBD.flatten().tolist() == [2, 3]
    place(store, 4, 5).write(place(store, 4, 5).read(), 8)
    assert place(store, 12, 5).read().memory_KCBD.flatten().tolist() == [2, 3]
    assert place(store, 4, 5, 8).read() is None, "5 has gone on"
    assert place(store, 4, 8).read() is not None
    assert list(store.at({2: 4, 5: 12, 8: 5})) == [2, 5]


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
