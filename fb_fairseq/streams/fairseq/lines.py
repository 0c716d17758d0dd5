"""The scores of a pass over a split, line by line: for what is counted by words, which blocks and streams cut."""

from collections.abc import Iterable, Iterator

import torch

from fb_fairseq.streams.fairseq.dataset import StreamDataset


class LineScores:
    """Collects the scores of blocks, and gives them back as lines of the text.

    Args:
        dataset: an arranged dataset, all streams of which are scored.
    """

    def __init__(self, dataset: StreamDataset):
        self.corpus, self.layout = dataset.corpus, dataset.layout
        self.scores = torch.zeros(len(self.corpus))
        self.missing = len(self.corpus)

    def attach(self, batches: Iterable[dict]) -> Iterator[dict]:
        """Give each batch these scores as ``lines``, for ``fb_fairseq.patches.generation``."""
        for batch in batches:
            yield {**batch, "lines": self}

    def replace(self, sample: dict, hypotheses: list[list[dict]]) -> Iterable[list[dict]]:
        """Keep the scores of a block. After the last block, all lines with their scores, before it none.

        Args:
            sample: the batch; in the last one, ``id`` becomes the numbers of the lines.
            hypotheses: what fairseq's ``SequenceScorer`` returns for it.
        """
        steps = sample["net_input"]["src_tokens"].shape[1]
        for stream, (hypothesis,) in zip(sample["id"].tolist(), hypotheses):
            first, last = self.layout.targets(stream, sample["block"]["offset"], steps)
            self.scores[first:last] = hypothesis["positional_scores"].float().cpu()
            self.missing -= last - first
        if self.missing:
            return []
        sample["id"] = range(len(self.corpus.documents))
        return self._lines()

    def _lines(self) -> Iterator[list[dict]]:
        start = 0
        for end in self.corpus.documents.tolist():
            yield [{"tokens": self.corpus[start:end], "positional_scores": self.scores[start:end]}]
            start = end
