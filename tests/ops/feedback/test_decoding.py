"""Rows of hypotheses that share a sentence are found by what the encoder returns for them."""

import pytest
import torch

from fb_fairseq.ops.feedback.decoding import first_rows, group_size


@pytest.mark.parametrize("rows,size", [("aabbbb", 2), ("aaa", 3), ("abbb", 1), ("aaab", 1), ("", 1)])
def test_largest_groups(rows, size):
    assert group_size(rows) == size


@pytest.mark.parametrize("padded", [False, True])
def test_first_row_of_each_sentence(padded):
    """Sentences differ in the encoder's output, or in what of it is padding."""
    out_CBD = torch.randn(3, 2, 4).repeat_interleave(2, 1)
    padding_BC = torch.zeros(4, 3, dtype=torch.bool) if padded else None
    assert first_rows(out_CBD, padding_BC).tolist() == [0, 2]
    if padded:
        padding_BC[1, 2] = True
        assert first_rows(out_CBD, padding_BC).tolist() == [0, 1, 2, 3]
