"""The store keeps the state before a block until the next one is served."""

import gc
import weakref

import numpy as np
import pytest
import torch

from fb_fairseq.modules import StreamState
from fb_fairseq.streams.bptt_warmup import BlockLengths
from fb_fairseq.streams.corpus import Corpus
from fb_fairseq.streams.dataset import StreamDataset
from fb_fairseq.streams.iterator import StreamBatchIterator
from fb_fairseq.streams.layout import StreamLayout
from fb_fairseq.streams.state import StateHandle, StateStore


def handle(store, offset, *cohorts):
    return StateHandle(store, cohorts or (0,), offset)


def state(position):
    return StreamState(torch.full((1, 2, 1, 1), float(position)))


def test_a_block_run_twice_starts_twice_from_the_same_state():
    store = StateStore()
    assert handle(store, 0).read() is None
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
    assert list(store.read_all({0: 8, 1: 8})) == [0]


def test_reading_changes_nothing():
    store = StateStore()
    handle(store, 0).write(state(4), 4)
    handle(store, 4).write(state(8), 4)
    for _ in range(2):
        for offset in (8, 4):
            assert handle(store, offset).read().memory_KCBD.tolist() == state(offset).memory_KCBD.tolist()


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
    assert list(store.read_all({2: 4, 5: 12, 8: 5})) == [2, 5]


class Items(list):
    """Stands for fairseq's indexed dataset."""

    @property
    def sizes(self):
        return np.array([len(item) for item in self], dtype=np.int64)


@pytest.mark.parametrize("lengths", [BlockLengths(8), BlockLengths(8, 2, 3)])
@pytest.mark.parametrize("groups", [1, 2])
def test_an_epoch_keeps_two_states_of_a_stream_at_most(lengths, groups):
    """The one before the last block served and the one after it; and none of the epoch before."""
    corpus = Corpus(Items([torch.arange(10, 410)]), 2)
    layout = StreamLayout(400, 4, groups, lengths)
    dataset = StreamDataset("train", corpus, 1).arrange(layout, "--batch-size")
    iterator = StreamBatchIterator(dataset, buffer_size=3)
    states = []
    gc.disable()  # reference counts alone must free them
    try:
        for epoch in range(2):
            for batch in iterator.next_epoch_itr():
                handle, (streams, steps) = batch["net_input"]["stream"], batch["target"].shape
                first, second = handle.read(), handle.read()
                assert (first is None) == (second is None) == (handle.offset == 0)
                if handle.offset:
                    assert first.memory_KCBD.equal(second.memory_KCBD)
                    assert first.memory_KCBD.flatten().tolist() == [stream + handle.offset for stream in batch["id"]]
                handle.write(StreamState((batch["id"] + handle.offset + steps).view(1, 1, streams, 1)), steps)
                for cohort in handle.cohorts:
                    states.append((epoch, cohort, weakref.ref(handle.store.read(cohort, handle.offset + steps))))
                del first, second, handle, batch
                alive = [(of, cohort) for of, cohort, reference in states if reference() is not None]
                assert all(of == epoch and alive.count((of, cohort)) <= 2 for of, cohort in alive)
    finally:
        gc.enable()
