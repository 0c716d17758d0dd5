"""Stands for fairseq's indexed datasets; their files."""

import numpy as np
import torch
from fairseq.data.indexed_dataset import make_builder

from fb_fairseq.streams.fairseq.corpus import Corpus

EOS, PAD = 2, 1
FIRST_TOKEN = 10  # of a made-up corpus


class Items(list):
    """A dataset of tensors, one for each line."""

    @property
    def sizes(self):
        """The lengths of the lines."""
        return np.array([len(item) for item in self], dtype=np.int64)


def corpus(sizes):
    """Tokens 10, 11, 12, … in items of these sizes."""
    starts = np.cumsum([0] + list(sizes))
    return Corpus(Items(torch.arange(FIRST_TOKEN + a, FIRST_TOKEN + b) for a, b in zip(starts, starts[1:])), EOS)


def write(path, lines, impl="mmap"):
    """Write lines as fairseq-preprocess does, to ``<path>.bin`` and ``<path>.idx``."""
    builder = make_builder(f"{path}.bin", impl=impl, vocab_size=99999)  # 4 bytes each
    for line in lines:
        builder.add_item(torch.IntTensor(line))
    builder.finalize(f"{path}.idx")
