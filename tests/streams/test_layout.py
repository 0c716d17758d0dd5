"""Which streams share a batch, for any number of processes and groups."""

import argparse

import pytest

from fb_fairseq.errors import UserError
from fb_fairseq.streams.layout import BlockLengths, StreamLayout


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
            sorted(s for g in range(layout.groups) for s in layout.batch(turn * layout.groups + g).streams)
            for layout in layouts
        ]
        assert served[0] == served[1] == served[2]
    for layout in layouts[1:]:  # and a group keeps its streams to the end: their memory is in one process
        for index in range(len(layout.turns) * layout.groups):
            assert {cohort % layout.groups for cohort in layout.batch(index).cohorts} == {index % layout.groups}


@pytest.mark.parametrize("tokens,rows", [(48, 1), (1003, 6)])
@pytest.mark.parametrize("every,start", [(1, 0), (3, 4), (50, 0)])
def test_turns_have_equal_tokens_and_parts_take_turns(tokens, rows, every, start):
    """While blocks become longer, from 1 step to 8; the last turn of a part may be shorter."""
    lengths = BlockLengths(full=8, initial=1, double_every=every)
    layout = StreamLayout(tokens, rows, 1, lengths, start=start)
    ends = (tokens // layout.streams, -(-tokens // layout.streams))
    for turn, (parts, offset, steps) in enumerate(layout.turns):
        block = lengths.at(start + turn)
        assert len(parts) * layout.streams // layout.parts * block == rows * 8
        assert steps == block or offset + steps in ends
    assert layout.offsets(0) == [0] * layout.parts and layout.turns_until(layout.offsets(0)) == 0
    for turns in range(1, len(layout.turns)):
        offsets = layout.offsets(turns)
        assert layout.turns_until(offsets) == turns and max(offsets) - min(offsets) <= 8


def lengths(full, initial, every):
    """The block lengths of these options."""
    options = dict(tokens_per_sample=full, bptt_warmup_tokens=initial, bptt_warmup_iterations=every)
    return BlockLengths.from_options(argparse.Namespace(**options))


def test_block_lengths():
    """They double from the first on; the smallest warm-up, none at all, and one that begins with whole blocks."""
    found = lengths(8, 1, 1)
    assert [found.at(iteration) for iteration in range(5)] == [1, 2, 4, 8, 8]
    assert [found.is_full(iteration) for iteration in (2, 3)] == [False, True]
    assert [lengths(8, 4, 3).at(iteration) for iteration in (0, 2, 3)] == [4, 4, 8]
    assert lengths(8, 0, 0).at(0) == lengths(8, 8, 5).at(0) == 8
    assert StreamLayout(96, 2, 1, found).parts == 8, "of a pass that begins with the first iteration"


@pytest.mark.parametrize("full,initial,every", [(9, 3, 1), (8, 16, 1), (12, 8, 1), (8, 5, 1)])
def test_lengths_that_doubling_never_reaches(full, initial, every):
    with pytest.raises(UserError, match=f"^--bptt-warmup-tokens {initial}: doubling it never gives .* {full};"):
        lengths(full, initial, every)


@pytest.mark.parametrize("initial,every", [(0, 1), (1, 0), (-1, 1), (1, -1)])
def test_a_warm_up_needs_both_options(initial, every):
    with pytest.raises(UserError, match=f"^--bptt-warmup-tokens {initial} and --bptt-warmup-iterations {every}: give"):
        lengths(8, initial, every)
