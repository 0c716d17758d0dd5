"""The concatenated tokens of a split, with and without the end of each line."""

import numpy as np
import pytest
import torch

from fb_fairseq.errors import UserError
from fb_fairseq.streams.corpus import Corpus, check_ends

EOS = 2


class Lines(list):
    """Stands for fairseq's indexed dataset."""

    @property
    def sizes(self):
        return np.array([len(line) for line in self])


LINES = Lines(torch.tensor(line) for line in ([5, 6, EOS], [EOS], [EOS], [7, EOS], [8, 9, 10, EOS], [EOS]))


@pytest.mark.parametrize("omit_eos", [False, True])
def test_every_slice(omit_eos):
    corpus = Corpus(LINES, EOS, omit_eos)
    tokens = torch.cat(list(LINES)).tolist()
    if omit_eos:
        tokens = [token for token in tokens if token != EOS]
    assert len(corpus) == len(tokens)
    for start in range(-1, len(tokens)):
        for stop in range(start + 1, len(tokens) + 1):
            assert corpus[start:stop].tolist() == ([EOS] + tokens)[start + 1 : stop + 1], (start, stop)


def test_lines_must_end():
    check_ends("data", LINES, EOS)
    with pytest.raises(UserError, match="data: its lines do not end in </s>; leave out --omit-eos"):
        check_ends("data", Lines([torch.tensor([5, EOS]), torch.tensor([5, 6])]), EOS)
    with pytest.raises(UserError, match="data: has no tokens but </s>"):
        check_ends("data", Lines([torch.tensor([EOS])]), EOS)
