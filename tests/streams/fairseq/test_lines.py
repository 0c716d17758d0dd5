"""Scores of blocks as lines of the text, however it is cut into streams and blocks."""

import pytest
import torch

from fb_fairseq.streams.fairseq.corpus import LineScores, StreamDataset
from fb_fairseq.streams.layout import BlockLengths, StreamLayout
from tests.streams.fairseq.indexed import PAD, corpus

SIZES = [3, 1, 9, 2, 6]


@pytest.mark.parametrize("streams,block", [(1, 100), (1, 4), (3, 4), (4, 1)])
def test_lines(streams, block):
    data = StreamDataset("test", corpus(SIZES), PAD).arrange(StreamLayout(21, streams, 1, BlockLengths(block)), "--x")
    lines, found = LineScores(data), []
    for sample in lines.attach(data[i] for (i,) in data.layout.batches()):
        assert not found, "they come after the last block"
        rows = [row[row != PAD] for row in sample["target"]]
        found = list(sample["lines"].replace(sample, [[{"positional_scores": -row.float()}] for row in rows]))
    assert [int(n) for n in sample["id"]] == [0, 1, 2, 3, 4] and [len(line["tokens"]) for (line,) in found] == SIZES
    assert torch.cat([line["tokens"] for (line,) in found]).tolist() == list(range(10, 31))
    assert all(line["positional_scores"].equal(-line["tokens"].float()) for (line,) in found)
