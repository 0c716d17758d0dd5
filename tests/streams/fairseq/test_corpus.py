"""The concatenated tokens of a split, with and without the end of each line."""

import pytest
import torch

from fb_fairseq.errors import UserError
from fb_fairseq.streams.fairseq.corpus import Corpus, check_ends
from tests.streams.fairseq.indexed import EOS, Items, corpus

LINES = Items(torch.tensor(line) for line in ([5, 6, EOS], [EOS], [EOS], [7, EOS], [8, 9, 10, EOS], [EOS]))
EMPTY = corpus([3, 0, 4, 0]).dataset


@pytest.mark.parametrize("lines,omit_eos", [(LINES, False), (LINES, True), (EMPTY, False)])
def test_every_slice(lines, omit_eos):
    """Of one sequence after </s>."""
    text = Corpus(lines, EOS, omit_eos)
    tokens = torch.cat(list(lines)).tolist()
    if omit_eos:
        tokens = [token for token in tokens if token != EOS]
    assert len(text) == len(tokens)
    for start in range(-1, len(tokens)):
        for stop in range(start + 1, len(tokens) + 1):
            assert text[start:stop].tolist() == ([EOS] + tokens)[start + 1 : stop + 1], (start, stop)


def test_lines_must_end():
    check_ends("data", LINES, EOS)
    with pytest.raises(UserError, match="data: its lines do not end in </s>; leave out --omit-eos"):
        check_ends("data", Items([torch.tensor([5, EOS]), torch.tensor([5, 6])]), EOS)
    with pytest.raises(UserError, match="data: has no tokens but </s>"):
        check_ends("data", Items([torch.tensor([EOS])]), EOS)


def test_fingerprint_tells_texts_apart():
    text, other = corpus([500]), corpus([500])
    assert text.fingerprint() == other.fingerprint() == corpus([100, 400]).fingerprint()
    other.dataset[0][3] = 5
    assert text.fingerprint() != other.fingerprint() != corpus([501]).fingerprint()
