"""The store keeps the state before a block until the next one is served."""

import torch

from fb_fairseq.modules import StreamState
from fb_fairseq.streams.state import CarriesMemory, StateHandle, StateStore


def handle(store, offset, *cohorts):
    return StateHandle(store, cohorts or (0,), offset)


def state(position):
    return StreamState(torch.full((1, 2, 1, 1), float(position)))


def test_a_block_run_twice_starts_twice_from_the_same_state():
    store = StateStore()
    assert handle(store, 0).read() is None and store.latest(0) is None
    handle(store, 0).write(state(4), 4)
    handle(store, 0).write(state(4), 4)  # run again
    store.drop_before((0,), 4)
    assert handle(store, 4).read().memory_KCBD.max() == 4
    handle(store, 4).write(state(8), 4)
    assert handle(store, 4).read().memory_KCBD.max() == 4  # run again, after it was written
    store.drop_before((0,), 8)
    assert handle(store, 8).read().memory_KCBD.max() == 8
    assert handle(store, 4).read() is None  # dropped
    assert handle(store, 8, 1).read() is None  # other streams


def test_cohorts_part_and_carry_on_alone():
    store = StateStore()
    rows = StreamState(torch.arange(6.0).view(1, 1, 6, 1))
    handle(store, 0, 2, 5, 8).write(rows, 4)
    assert handle(store, 4, 2, 5, 8).read().memory_KCBD.flatten().tolist() == [0, 1, 2, 3, 4, 5]
    assert handle(store, 4, 5).read().memory_KCBD.flatten().tolist() == [2, 3]
    handle(store, 4, 5).write(handle(store, 4, 5).read(), 8)
    store.drop_before((5,), 12)
    assert handle(store, 12, 5).read().memory_KCBD.flatten().tolist() == [2, 3]
    assert handle(store, 4, 5, 8).read() is None, "5 is ahead"
    assert handle(store, 4, 8).read() is not None


def test_what_is_logged_of_a_handle():
    """fairseq prints batches that do not fit into memory: not the memory of all streams."""
    assert repr(handle(StateStore(), 12, 5)) == "StateHandle(cohorts=(5,), offset=12)"


def test_a_model_that_only_takes_a_stream():
    """It needs no more than the base class to be trained."""
    CarriesMemory().before_train_step({})
