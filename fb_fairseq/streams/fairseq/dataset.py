"""A corpus in batches of streams, as a dataset of fairseq."""

import logging

import torch
from fairseq.data import FairseqDataset

from fb_fairseq.errors import UserError
from fb_fairseq.streams.layout import StreamLayout

logger = logging.getLogger(__name__)


class StreamDataset(FairseqDataset):
    """The corpus of one split, served in the batches of a ``StreamLayout``. One item is one whole batch.

    Args:
        split: the name of the split.
        corpus: a ``Corpus`` or ``LabelledCorpus``.
        pad: the index of padding.
        layout: None until ``arrange``.
    """

    def __init__(self, split: str, corpus, pad: int, layout: StreamLayout | None = None):
        self.split = split
        self.corpus = corpus
        self.pad = pad
        self.layout = layout

    def arrange(self, layout: StreamLayout, option: str) -> "StreamDataset":
        """Serve the corpus in this layout.

        Args:
            layout: of the streams.
            option: the options that set the number of streams, for messages. If it begins with ``--batch-size``, a
                warning is logged where there is text for one turn only.
        """
        if layout.streams > layout.max_streams:
            raise UserError(
                f"{option}{layout.warmup_factor}: {layout.streams} streams, but the {self.split} split has only "
                f"{layout.max_streams} {layout.unit}; use fewer streams, or more data"
            )
        if option.startswith("--batch-size") and len(layout.turns) == 1:
            logger.warning(
                f"{option}: {layout.streams} streams of the {layout.tokens} tokens of the {self.split} split are read "
                "in one update, so that no memory is carried; use fewer streams, or more data"
            )
        return StreamDataset(self.split, self.corpus, self.pad, layout)

    def __len__(self) -> int:
        return len(self.layout.turns) * self.layout.groups if self.layout else len(self.corpus)

    def __getitem__(self, index: int):
        batch = self.layout.batch(index)
        source = torch.full((len(batch.streams), batch.steps), self.pad)
        target = torch.full((len(batch.streams), batch.steps), self.pad)
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

    @property
    def sizes(self):
        """The lengths of the corpus's lines (documents)."""
        return self.corpus.dataset.sizes

    def num_tokens(self, index: int) -> int:
        """The number of tokens of a batch, with padding."""
        batch = self.layout.batch(index)
        return batch.steps * len(batch.streams)

    size = num_tokens
