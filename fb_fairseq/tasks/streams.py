"""A corpus cut into parallel streams, and streams into blocks: every target once, in order.

N targets, G streams, M steps a block. Stream b predicts the targets ``b N / G`` to ``(b + 1) N / G``; its first input
is the token before its first target, the corpus's first input is ``</s>``.
"""

import zlib
from typing import List, NamedTuple

import numpy as np
import torch
from fairseq.data import FairseqDataset

from fb_fairseq.errors import UserError


class Corpus:
    """A split's tokens, end to end. Reads slices from fairseq's indexed dataset, and keeps nothing in memory."""

    def __init__(self, dataset, eos: int):
        self.dataset = dataset
        self.eos = eos
        self.ends = np.cumsum(dataset.sizes, dtype=np.int64)

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def __getitem__(self, span: slice) -> torch.Tensor:
        """Tokens start … stop - 1 (int64). Position -1 is the ``</s>`` before the corpus."""
        start, stop = span.start, span.stop
        parts = [torch.tensor([self.eos])] if start < 0 else []
        start = max(start, 0)
        item = int(np.searchsorted(self.ends, start, side="right"))
        while start < stop:
            begin = int(self.ends[item - 1]) if item else 0
            end = min(stop, int(self.ends[item]))
            parts.append(self.dataset[item][start - begin : end - begin])
            start = end
            item += 1
        return torch.cat(parts).long() if parts else torch.empty(0, dtype=torch.long)

    def fingerprint(self) -> int:
        """A checksum of a few thousand tokens and the length, to recognise the same split again."""
        n = len(self)
        sample = [self[at : min(at + 64, n)] for at in np.linspace(0, max(n - 64, 0), 32).astype(int).tolist()]
        return zlib.crc32(torch.cat(sample).numpy().tobytes(), n & 0xFFFFFFFF)


class StreamLayout(NamedTuple):
    """How a corpus of N tokens is served: G streams in equal groups (one group a batch), blocks of M steps.

    A batch is numbered ``block * groups + group``, so that fairseq's round robin over processes gives every
    process the same groups at each block, and one update sees each stream once.
    """

    tokens: int
    streams: int
    groups: int
    block: int

    @property
    def blocks(self) -> int:
        return -(-self._longest // self.block)

    @property
    def _longest(self) -> int:
        return -(-self.tokens // self.streams)

    def group(self, group: int) -> List[int]:
        """The streams of a group."""
        bounds = [-(-g * self.streams // self.groups) for g in (group, group + 1)]
        return list(range(*bounds))

    def targets(self, stream: int, block: int):
        """First and last + 1 target of a stream's block; the last block is shorter, or empty."""
        first, last = (b * self.tokens // self.streams for b in (stream, stream + 1))
        return tuple(min(first + b * self.block, last) for b in (block, block + 1))

    def steps(self, block: int) -> int:
        """How many steps the block has: M, or what is left of the longest stream."""
        return min(self.block, self._longest - block * self.block)

    def batches(self) -> List[List[int]]:
        """fairseq's batch sampler: one item a batch; a group without streams is an empty batch, which it replaces."""
        return [
            [block * self.groups + group] if self.group(group) else []
            for block in range(self.blocks)
            for group in range(self.groups)
        ]


class StreamDataset(FairseqDataset):
    """The corpus of one split; ``arrange`` gives the batches. Items are whole batches of one group's block."""

    def __init__(self, split: str, corpus: Corpus, pad: int, layout: StreamLayout = None):
        self.split = split
        self.corpus = corpus
        self.pad = pad
        self.layout = layout

    def arrange(self, streams: int, groups: int, block: int, option: str) -> "StreamDataset":
        """The same corpus in that many streams.

        Raises:
            UserError: there are more streams than tokens; names ``option``.
        """
        if streams > len(self.corpus):
            raise UserError(
                f"{option}: {streams} streams, but the {self.split} split has only {len(self.corpus)} tokens; "
                f"give fewer streams, or more text"
            )
        return StreamDataset(
            self.split, self.corpus, self.pad, StreamLayout(len(self.corpus), streams, groups, block)
        )

    def __len__(self) -> int:
        return self.layout.blocks * self.layout.groups if self.layout else len(self.corpus)

    def __getitem__(self, index: int):
        block, group = divmod(index, self.layout.groups)
        streams = self.layout.group(group)
        shape = (len(streams), self.layout.steps(block))
        source = torch.full(shape, self.pad)
        target = torch.full(shape, self.pad)
        lengths = []
        for row, stream in enumerate(streams):
            first, last = self.layout.targets(stream, block)
            lengths.append(last - first)
            tokens = self.corpus[first - 1 : last]
            source[row, : last - first] = tokens[:-1]
            target[row, : last - first] = tokens[1:]
        return {
            "id": torch.tensor(streams),
            "nsentences": len(streams),
            "ntokens": sum(lengths),
            "net_input": {"src_tokens": source, "src_lengths": torch.tensor(lengths)},
            "target": target,
            "place": {"group": group, "offset": block * self.layout.block},
        }

    def collater(self, samples):
        """The one sample of a batch; nothing for an empty batch."""
        return samples[0] if samples else {}

    @property
    def sizes(self):
        return self.corpus.dataset.sizes

    def num_tokens(self, index: int) -> int:
        return self.layout.block * len(self.layout.group(index % self.layout.groups))

    size = num_tokens
