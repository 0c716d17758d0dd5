"""A split as a dataset, and its iterator: every target once and in order, however the corpus is cut."""

import gc
import weakref

import pytest

from fb_fairseq.errors import UserError
from fb_fairseq.modules import StreamState
from fb_fairseq.streams.fairseq.dataset import StreamDataset
from fb_fairseq.streams.fairseq.iterator import StreamBatchIterator
from fb_fairseq.streams.layout import BlockLengths, StreamLayout
from tests.streams.fairseq.indexed import EOS, PAD, corpus


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
    steps = [lengths.at(start + turn) for turn in range(len(layout.turns))]
    for (parts, offset, done), block in zip(layout.turns, steps):
        streams = len(parts) * layout.streams // layout.parts
        assert streams * block == rows * 8, "as many tokens as in any other iteration"
        longest, shortest = -(-tokens // layout.streams), tokens // layout.streams
        assert done == block or offset + done in (longest, shortest)
    for turns in range(1, len(layout.turns)):
        offsets = layout.offsets(turns)
        assert layout.turns_until(offsets) == turns
        assert max(offsets) - min(offsets) <= 8, "parts take turns"


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
            history = seen.setdefault(stream, [])
            assert len(history) == sample["block"]["offset"] or not real.any()
            for i, o in zip(inputs[real].tolist(), outputs[real].tolist()):
                before = o - 1 if o > 10 else EOS  # in the text, whose tokens are 10, 11, …
                assert i == (history[-1] if history else before), "the input is the token before the target"
                history.append(o)
    assert sum((seen[stream] for stream in sorted(seen)), []) == list(range(10, 10 + tokens))
    assert max(map(len, seen.values())) - min(map(len, seen.values())) <= 1
    return len(seen)


@pytest.mark.parametrize("ends,has", [(None, "4 tokens"), ([2, 4], "2 sequences")])
def test_too_many_streams_are_refused(ends, has):
    layout = StreamLayout(4, 5, 1, BlockLengths(3), ends=ends)
    with pytest.raises(UserError, match=f"--batch-size: 5 streams, but the train split has only {has}"):
        StreamDataset("train", corpus([4]), PAD).arrange(layout, "--batch-size")


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
                first = handle.read()
                second = handle.read()
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
