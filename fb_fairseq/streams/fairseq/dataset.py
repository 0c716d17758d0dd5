"""A corpus in batches of streams, as a dataset of fairseq."""

import torch
from fairseq.data import FairseqDataset

from fb_fairseq.errors import UserError
from fb_fairseq.streams.layout import StreamLayout


class StreamDataset(FairseqDataset):
    """The corpus of one split, served in the batches of a ``StreamLayout``. One item is one whole batch.

    Args:
        split: the name of the split.
        corpus: a ``Corpus`` or ``LabelledCorpus``.
        pad: the index of padding.
        layout: of the streams; None in a dataset that is loaded, but of which nothing is served: see ``arrange``.
    """

    def __init__(self, split: str, corpus, pad: int, layout: StreamLayout | None = None):
        self.split = split
        self.corpus = corpus
        self.pad = pad
        self.layout = layout

    def arrange(self, layout: StreamLayout, option: str) -> "StreamDataset":
        """A dataset that serves the corpus in this layout.

        Args:
            layout: of the streams.
            option: the options that set the number of streams, for the error message.
        """
        if layout.streams > layout.max_streams:
            raise UserError(
                f"{option}{layout.warmup_factor}: {layout.streams} streams, but the {self.split} split has only "
                f"{layout.max_streams} {layout.unit}; use fewer streams, or more data"
            )
        return StreamDataset(self.split, self.corpus, self.pad, layout)

    def __len__(self) -> int:
        return len(self.layout.turns) * self.layout.groups if self.layout else len(self.corpus)

    def __getitem__(self, index: int):
        batch = self.layout.batch(index)
        source = torch.full((len(batch.streams), batch.steps), self.pad)
        target = source.clone()
        lengths = []
        for row, stream in enumerate(batch.streams):
            first, last = self.layout.targets(stream, batch.offset, batch.steps)
            lengths.append(last - first)
            source[row, : last - first], target[row, : last - first] = self.corpus.block(first, last)
        return {
            "id": torch.tensor(batch.streams),
            "nsentences": len(batch.streams),
            "ntokens": int(target.ne(self.pad).sum()),
            "net_input": {"src_tokens": source, "src_lengths": torch.tensor(lengths)},
            "target": target,
            "block": {"cohorts": batch.cohorts, "offset": batch.offset},  # see StreamBatchIterator
        }

    def collater(self, samples):
        """The only sample of a batch; an empty dict for an empty batch."""
        return samples[0] if samples else {}
