"""Every target once, in order, whatever the corpus, the number of streams and the block."""

import numpy as np
import pytest
import torch

from fb_fairseq.errors import UserError
from fb_fairseq.streams.bptt_warmup import BlockLengths
from fb_fairseq.streams.corpus import Corpus
from fb_fairseq.streams.dataset import StreamDataset
from fb_fairseq.streams.layout import StreamLayout

EOS, PAD = 2, 1


class Items(list):
    """Stands for fairseq's indexed dataset."""

    @property
    def sizes(self):
        return np.array([len(item) for item in self], dtype=np.int64)


def corpus(sizes):
    """Tokens 10, 11, 12, … in items of these sizes."""
    starts = np.cumsum([0] + list(sizes))
    return Corpus(Items(torch.arange(10 + a, 10 + b) for a, b in zip(starts, starts[1:])), EOS)


@pytest.mark.parametrize("sizes", [[7], [3, 0, 4, 0], [1] * 7])
def test_corpus_is_one_sequence_after_eos(sizes):
    text = corpus(sizes)
    assert len(text) == 7
    assert text[-1:7].tolist() == [EOS] + list(range(10, 17))
    for start in range(-1, 8):
        for stop in range(max(start, 0), 8):
            expected = ([EOS] if start < 0 else []) + list(range(10 + max(start, 0), 10 + stop))
            assert text[start:stop].tolist() == expected


def test_fingerprint_tells_texts_apart():
    text, other = corpus([500]), corpus([500])
    assert text.fingerprint() == other.fingerprint() == corpus([100, 400]).fingerprint()
    other.dataset[0][3] = 5
    assert text.fingerprint() != other.fingerprint() != corpus([501]).fingerprint()


@pytest.mark.parametrize("tokens", [4, 23, 64, 101])
@pytest.mark.parametrize("streams", [1, 3, 4])
@pytest.mark.parametrize("block", [1, 5, 200])
@pytest.mark.parametrize("groups", [1, 2, 4, 6])
def test_every_target_once_and_in_order(tokens, streams, block, groups):
    layout = StreamLayout(tokens, streams, groups, BlockLengths(block))
    assert serve(tokens, layout) == streams


@pytest.mark.parametrize("tokens", [40, 101, 1003])
@pytest.mark.parametrize("rows,groups", [(1, 1), (3, 1), (6, 2), (4, 4)])
@pytest.mark.parametrize("every", [1, 2, 3, 7, 50])
@pytest.mark.parametrize("start", [0, 4])
def test_every_target_once_through_all_doublings(tokens, rows, groups, every, start):
    lengths = BlockLengths(full=8, initial=1, double_every=every)
    layout = StreamLayout(tokens, rows, groups, lengths, start)
    if layout.streams > tokens:
        return
    assert serve(tokens, layout) == layout.streams == rows * 8 // lengths.at(start)
    steps = [lengths.at(start + turn) for turn in range(len(layout.turns))]
    for (parts, offset, done), block in zip(layout.turns, steps):
        streams = len(parts) * layout.streams // layout.parts
        assert streams * block == rows * 8, "as many tokens as in any other iteration"
        assert (
            done == block or offset + done == -(-tokens // layout.streams) or offset + done == tokens // layout.streams
        )
    for turns in range(1, len(layout.turns)):
        offsets = layout.offsets(turns)
        assert layout.turns_until(offsets) == turns
        assert max(offsets) - min(offsets) <= 8, "parts take turns"


def serve(tokens, layout):
    """Serve a corpus to its end, checking each batch. Returns the number of streams."""
    data = StreamDataset("train", corpus([tokens]), PAD).arrange(layout, "--x")
    seen = {}
    for batch in data.layout.batches():
        sample = data.collater([data[i] for i in batch])
        if not sample:
            continue
        source, target = sample["net_input"]["src_tokens"], sample["target"]
        assert source.shape == target.shape and source.shape[1] <= layout.lengths.full
        assert sample["ntokens"] == target.ne(PAD).sum() == sample["net_input"]["src_lengths"].sum()
        for stream, inputs, outputs in zip(sample["id"].tolist(), source, target):
            real = outputs.ne(PAD)
            assert real.equal(real.sort(descending=True)[0]), "padding is on the right"
            history = seen.setdefault(stream, [])
            assert len(history) == sample["block"]["offset"] or not real.any()
            for i, o in zip(inputs[real].tolist(), outputs[real].tolist()):
                expected = history[-1] if history else (o - 1 if o > 10 else EOS)
                assert i == expected, "the input is the token before the target"
                history.append(o)
    assert sum((seen[stream] for stream in sorted(seen)), []) == list(range(10, 10 + tokens))
    assert max(map(len, seen.values())) - min(map(len, seen.values())) <= 1
    return len(seen)


def test_groups_have_the_same_streams_for_any_number_of_processes():
    """Group g of one process with update frequency 4 is group g of four processes: fairseq deals them round robin."""
    layout = StreamLayout(100, 12, 4, BlockLengths(5))
    assert [layout.cohort(g) for g in range(4)] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
    assert layout.batches()[:5] == [[0], [1], [2], [3], [4]]
    few = StreamLayout(100, 2, 4, BlockLengths(5))
    assert few.cohort(0), "the first process has a stream: its batch stands in for the missing ones of others"
    assert sum((few.cohort(g) for g in range(4)), []) == [0, 1]


def test_an_iteration_serves_the_same_streams_for_any_number_of_groups():
    """So that batch size, processes and --update-freq may change in mid-epoch, in a warm-up too."""
    lengths = BlockLengths(8, 2, 3)
    layouts = [StreamLayout(1000, 12, groups, lengths) for groups in (1, 2, 4)]
    for turn in range(len(layouts[0].turns)):
        served = [
            sorted(s for g in range(layout.groups) for c in layout.cohorts(turn, g) for s in layout.cohort(c))
            for layout in layouts
        ]
        assert served[0] == served[1] == served[2]
    for layout in layouts[1:]:  # and a group keeps its streams to the end: their memory is in one process
        for group in range(layout.groups):
            cohorts = [set(layout.cohorts(turn, group)) for turn in range(len(layout.turns))]
            assert all(c % layout.groups == group for one in cohorts for c in one)


def test_more_streams_than_tokens_is_refused():
    with pytest.raises(UserError, match=r"--batch-size.*5 streams.*4 tokens"):
        StreamDataset("train", corpus([4]), PAD).arrange(StreamLayout(4, 5, 1, BlockLengths(3)), "--batch-size")
