"""The iterator serves the blocks in order, and frees the memory that no block needs any more."""

import gc
import weakref

import pytest

from fb_fairseq.modules import StreamState
from fb_fairseq.streams.fairseq.corpus import StreamDataset
from fb_fairseq.streams.fairseq.iterator import StreamBatchIterator
from fb_fairseq.streams.layout import BlockLengths, StreamLayout
from tests.streams.fairseq.indexed import PAD, corpus


@pytest.mark.parametrize("lengths", [BlockLengths(8), BlockLengths(8, 2, 3)])
@pytest.mark.parametrize("groups", [1, 2])
def test_an_epoch_keeps_two_states_of_a_stream_at_most(lengths, groups):
    """The one before the last block served and the one after it; and none of the epoch before."""
    layout = StreamLayout(400, 4, groups, lengths)
    dataset = StreamDataset("train", corpus([400]), PAD).arrange(layout, "--batch-size")
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
