"""A split as a dataset, and its iterator: every target once and in order, however the corpus is cut."""

import gc
import weakref

import pytest

from fb_fairseq.errors import UserError
from fb_fairseq.modules import StreamState
from fb_fairseq.streams.fairseq.dataset import StreamDataset
from fb_fairseq.streams.fairseq.iterator import StreamBatchIterator
from fb_fairseq.streams.layout import BlockLengths, StreamLayout
from tests.streams.fairseq.indexed import EOS, FIRST_TOKEN, PAD, corpus


@pytest.mark.parametrize("tokens", [4, 23, 64, 101])
@pytest.mark.parametrize("streams", [1, 3, 4])
@pytest.mark.parametrize("block", [1, 5, 200])
@pytest.mark.parametrize("groups", [1, 2, 4, 6])
def test_every_target_once_and_in_order(tokens, streams, block, groups):
    layout = StreamLayout(tokens, streams, groups, BlockLengths(block))
    assert check_served(tokens, layout) == streams


@pytest.mark.parametrize("tokens", [48, 101, 1003])
@pytest.mark.parametrize("rows,groups", [(1, 1), (3, 1), (6, 2), (4, 4)])
@pytest.mark.parametrize("every", [1, 2, 3, 7, 50])
@pytest.mark.parametrize("start", [0, 4])
def test_every_target_once_through_all_doublings(tokens, rows, groups, every, start):
    lengths = BlockLengths(full=8, initial=1, double_every=every)
    layout = StreamLayout(tokens, rows, groups, lengths, start=start)
    assert check_served(tokens, layout) == layout.streams == rows * 8 // lengths.at(start)


def check_served(tokens, layout):
    """Serve a corpus to its end, checking each batch. Returns the number of streams."""
    data = StreamDataset("train", corpus([tokens]), PAD).arrange(layout, "--x")
    seen = {}
    for batch in data.layout.batches():
        sample = data.collater([data[i] for i in batch])
        if not sample:
            continue
        source = sample["net_input"]["src_tokens"]
        target = sample["target"]
        assert source.shape == target.shape and source.shape[1] <= layout.lengths.full
        assert sample["ntokens"] == target.ne(PAD).sum() == sample["net_input"]["src_lengths"].sum()
        for stream, inputs, outputs in zip(sample["id"].tolist(), source, target):
            real = outputs.ne(PAD)
            assert real.equal(real.sort(descending=True)[0]), "padding is on the right"
            targets = outputs[real].tolist()
            before = [token - 1 if token > FIRST_TOKEN else EOS for token in targets]
            assert inputs[real].tolist() == before, "the input is the token before the target"
            served = seen.setdefault(stream, [])
            assert not targets or len(served) == sample["block"]["offset"]
            served += targets
    assert sum((seen[stream] for stream in sorted(seen)), []) == list(range(FIRST_TOKEN, FIRST_TOKEN + tokens))
    assert max(map(len, seen.values())) - min(map(len, seen.values())) <= 1
    return len(seen)


@pytest.mark.parametrize("ends,has", [(None, "4 tokens"), ([2, 4], "2 sequences")])
def test_too_many_streams_are_refused(ends, has):
    layout = StreamLayout(4, 5, 1, BlockLengths(3), ends=ends)
    with pytest.raises(UserError, match=f"--batch-size: 5 streams, but the train split has only {has}"):
        StreamDataset("train", corpus([4]), PAD).arrange(layout, "--batch-size")


def two_epochs(lengths, groups):
    """The epoch, streams, steps and handle of each batch: 400 tokens in four streams, twice."""
    layout = StreamLayout(400, 4, groups, lengths)
    dataset = StreamDataset("train", corpus([400]), PAD).arrange(layout, "--batch-size")
    iterator = StreamBatchIterator(dataset, buffer_size=3)
    for epoch in range(2):
        for batch in iterator.next_epoch_itr():
            yield epoch, batch["id"], batch["target"].shape[1], batch["net_input"]["stream"]


CUTS = pytest.mark.parametrize("lengths,groups", [(BlockLengths(8), 1), (BlockLengths(8, 2, 3), 2)])


def write(streams, steps, handle):
    """Write a state whose only number is the stream's number plus its steps so far."""
    handle.write(StreamState((streams + handle.offset + steps).view(1, 1, len(streams), 1)), steps)


@CUTS
def test_a_block_reads_what_the_block_before_it_wrote(lengths, groups):
    """However often it reads; the first block of each epoch reads nothing."""
    for _, streams, steps, handle in two_epochs(lengths, groups):
        for state in (handle.read(), handle.read()):
            found = None if state is None else state.memory_KCBD.flatten().tolist()
            assert found == ((streams + handle.offset).tolist() if handle.offset else None)
        write(streams, steps, handle)


@CUTS
def test_an_epoch_keeps_two_states_of_a_stream_at_most(lengths, groups):
    """The one before the last block served and the one after it; and none of the epoch before."""
    states = []
    gc.disable()  # reference counts alone must free them
    try:
        for epoch, streams, steps, handle in two_epochs(lengths, groups):
            write(streams, steps, handle)
            for cohort in handle.cohorts:
                states.append((epoch, cohort, weakref.ref(handle.store.read(cohort, handle.offset + steps))))
            del handle
            alive = [(of, cohort) for of, cohort, reference in states if reference() is not None]
            assert all(of == epoch and alive.count((of, cohort)) <= 2 for of, cohort in alive)
    finally:
        gc.enable()
