"""The tokens of one split as one long sequence."""

import functools
import os
import zlib

import numpy as np
import torch
from fairseq.data import data_utils, indexed_dataset

from fb_fairseq.byte_codec import ITEM_TOKENS
from fb_fairseq.errors import UserError

# The fingerprint of a corpus covers this many evenly spaced samples of this many tokens.
FINGERPRINT_SAMPLES = 32
FINGERPRINT_SAMPLE_TOKENS = 64


class Corpus:
    """The concatenated tokens of a split, read slice by slice from fairseq's indexed (memory-mapped) dataset.

    Args:
        dataset: fairseq's indexed dataset; an item is a line (document) with its ``</s>``, if it has one.
        eos: the index of ``</s>``, the input before the first token.
        omit_eos: leave out the last token of each item.

    Attributes:
        ends: where each item ends in the concatenation (exclusive), int64.
    """

    def __init__(self, dataset, eos: int, omit_eos: bool = False):
        self.dataset = dataset
        self.eos = eos
        sizes = dataset.sizes - omit_eos
        if omit_eos:
            sizes[self._inner_pieces] += 1  # they do not end in </s>
        self.ends = np.cumsum(sizes, dtype=np.int64)

    @functools.cached_property
    def _inner_pieces(self) -> list[int]:
        return inner_pieces(self.dataset, self.eos)

    @functools.cached_property
    def documents(self) -> np.ndarray:
        """The ends of lines, or of documents of bytes, of which long ones are stored as several items."""
        return np.delete(self.ends, self._inner_pieces)

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def __getitem__(self, span: slice) -> torch.Tensor:
        """The tokens ``span.start`` to ``span.stop - 1`` (int64); position -1 is the ``</s>`` before the corpus."""
        start, stop = span.start, span.stop
        pieces = [torch.tensor([self.eos])] if start < 0 else []
        start = max(start, 0)
        item = int(np.searchsorted(self.ends, start, side="right"))
        while start < stop:
            item_start = int(self.ends[item - 1]) if item else 0
            item_stop = min(stop, int(self.ends[item]))
            pieces.append(self.dataset[item][start - item_start : item_stop - item_start])
            start = item_stop
            item += 1
        return torch.cat(pieces).long() if pieces else torch.empty(0, dtype=torch.long)

    def block(self, first: int, last: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The inputs and the targets of the positions ``first`` to ``last - 1``: each input precedes its target."""
        tokens = self[first - 1 : last]
        return tokens[:-1], tokens[1:]

    def fingerprint(self) -> int:
        """A checksum of the length and some samples of the tokens, to recognise the same split in a resumed run."""
        n = len(self)
        starts = np.linspace(0, max(n - FINGERPRINT_SAMPLE_TOKENS, 0), FINGERPRINT_SAMPLES).astype(int).tolist()
        samples = [self[start : min(start + FINGERPRINT_SAMPLE_TOKENS, n)] for start in starts]
        return zlib.crc32(torch.cat(samples).numpy().tobytes(), n & 0xFFFFFFFF)


def inner_pieces(dataset, eos: int) -> list[int]:
    """The items that are pieces of a document of bytes, but for its last one."""
    pieces = np.flatnonzero(dataset.sizes == ITEM_TOKENS)  # (the last item ends a document in any case)
    return [i for i in pieces.tolist() if i + 1 < len(dataset.sizes) and int(dataset[i][-1]) != eos]


class Documents:
    """A corpus as a sequence of its documents, as tensors of their tokens.

    Attributes:
        sizes: their lengths.
    """

    def __init__(self, corpus: Corpus):
        self.corpus = corpus
        self.sizes = np.diff(corpus.documents, prepend=0)

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: int) -> torch.Tensor:
        if not 0 <= index < len(self):
            raise IndexError(index)
        end = int(self.corpus.documents[index])
        return self.corpus[end - int(self.sizes[index]) : end]


def check_ends(path: str, dataset, eos: int) -> None:
    """Check that items end in ``</s>`` and have more tokens, for ``--omit-eos``. (Some items are read.)

    Args:
        path: of the split, for messages.
        dataset, eos: see ``Corpus``.
    """
    n = len(dataset)
    inner = set(inner_pieces(dataset, eos))
    if any(int(dataset[i][-1]) != eos for i in {0, n // 2, n - 1} - inner):
        raise UserError(f"{path}: its lines do not end in </s>; leave out --omit-eos")
    if int(dataset.sizes.sum()) == n:
        raise UserError(f"{path}: has no tokens but </s>; leave out --omit-eos")


def load_indexed_dataset(path: str, dictionary, impl=None, combine: bool = False):
    """Load fairseq's indexed dataset of a split.

    Args:
        path: the files of the split without ``.bin`` and ``.idx``.
        dictionary: fairseq's.
        impl: ``--dataset-impl``; None to infer it from the files.
        combine: also append the files ``<path>1``, ``<path>2``, …, as fairseq does for the training split.
    """
    remedy = "prepare it, or name another one (--train-subset, --valid-subset, --gen-subset; plot --split)"
    named = os.path.exists(path) and impl in ("raw", "fasta")
    text = named or os.path.exists(f"{path}.None-None")  # as --dataset-impl raw names a text alone
    if text and not os.path.isfile(f"{path}.bin"):
        raise UserError(f"{path}: is a text file of --dataset-impl raw; run fairseq-preprocess without it (mmap)")
    if impl in (None, "cached") and indexed_dataset.infer_dataset_impl(path) == "cached":
        impl = "lazy"  # the same format; "cached" reads only what is asked for beforehand
    is_empty = os.path.isfile(f"{path}.bin") and os.path.getsize(f"{path}.bin") == 0  # fairseq cannot map it
    dataset = None if is_empty else data_utils.load_indexed_dataset(path, dictionary, impl, combine=combine)
    if dataset is None:
        raise UserError(f"{path}: the split is {'empty' if is_empty else 'missing'}; {remedy}")
    return dataset


def load_corpus(path: str, dictionary, *, omit_eos: bool, impl=None, combine: bool = False) -> Corpus:
    """Load the ``Corpus`` of a split, whose lines must end in ``</s>`` to leave that out.

    Args:
        dictionary: fairseq's.
        omit_eos: see ``Corpus``.
        path, impl, combine: see ``load_indexed_dataset``.
    """
    dataset = load_indexed_dataset(path, dictionary, impl, combine)
    if omit_eos:
        check_ends(path, dataset, dictionary.eos())
    return Corpus(dataset, dictionary.eos(), omit_eos)
