"""A corpus cut into parallel streams, and streams into blocks: every target once, in order.

N targets, G streams, M steps a block. Stream b predicts the targets ``b N / G`` to ``(b + 1) N / G``; its first input
is the token before its first target, the corpus's first input is ``</s>``.
"""

import zlib
from typing import List, NamedTuple, Optional, Tuple

import numpy as np
import torch
from fairseq.data import FairseqDataset

from fb_fairseq.errors import UserError
from fb_fairseq.streams.bptt_warmup import BlockLengths


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

    def block(self, first: int, last: int) -> Tuple[torch.Tensor, torch.Tensor]:
        """What is read to predict the targets first … last - 1, and these."""
        tokens = self[first - 1 : last]
        return tokens[:-1], tokens[1:]

    def fingerprint(self) -> int:
        """A checksum of a few thousand tokens and the length, to recognise the same split again."""
        n = len(self)
        sample = [self[at : min(at + 64, n)] for at in np.linspace(0, max(n - 64, 0), 32).astype(int).tolist()]
        return zlib.crc32(torch.cat(sample).numpy().tobytes(), n & 0xFFFFFFFF)


class Turn(NamedTuple):
    """One iteration: these parts of the streams go on from this step, so many steps at most."""

    parts: range
    offset: int
    steps: int


class StreamLayout:
    """How one pass over a corpus of N tokens is served.

    Without BPTT warm-up, G streams in equal groups (one group a batch, all groups one iteration) are read in blocks
    of M steps. In the warm-up, while blocks have M / n steps, there are n times as many streams, so that an iteration
    has as many tokens. A pass keeps the streams it begins with: when blocks get longer, fewer streams fit into an
    iteration, and parts of them take turns.

    A cohort is the part p of the streams of group g: streams that always move together, number ``p * groups + g``.
    A batch is numbered ``turn * groups + group``, so that fairseq's round robin over processes gives every process
    the same groups in each turn.

    Args:
        tokens: N.
        rows: streams that an iteration serves in blocks of full length.
        groups: batches of an iteration: processes x ``--update-freq``.
        lengths: steps of the blocks.
        start: iterations before this pass.
        ends: where the corpus's sequences end, if streams are to begin with whole ones.
    """

    def __init__(
        self,
        tokens: int,
        rows: int,
        groups: int,
        lengths: BlockLengths,
        start: int = 0,
        ends: Optional[np.ndarray] = None,
    ):
        self.tokens = tokens
        self.groups = groups
        self.lengths = lengths
        self.parts = lengths.full // lengths.at(start)
        self.streams = rows * self.parts
        # Of what, and of how much of it, each stream needs one at least.
        self.unit, self.units = ("tokens", tokens) if ends is None else ("sequences", len(ends))
        self.bounds = np.arange(self.streams + 1, dtype=np.int64) * self.units // self.streams
        if ends is not None:
            self.bounds = np.concatenate([[0], ends])[self.bounds]
        self.turns = self._turns(lengths, start)

    def _turns(self, lengths: BlockLengths, start: int) -> List[Turn]:
        longest = np.diff(self.bounds).reshape(self.parts, -1).max(1).tolist()
        offsets = [0] * self.parts
        turns: List[Turn] = []
        at = 0  # the part whose turn it is; a multiple of the parts that go together, also when these are halved
        while any(offset < end for offset, end in zip(offsets, longest)):
            block = lengths.at(start + len(turns))
            parts = range(at, at + lengths.full // block)
            at = parts.stop % self.parts
            steps = min(block, max(longest[parts.start : parts.stop]) - offsets[parts.start])
            if steps > 0:
                turns.append(Turn(parts, offsets[parts.start], steps))
            for part in parts:
                offsets[part] += block
        return turns

    @property
    def warmup_factor(self) -> str:
        """For messages: what ``rows`` is multiplied by."""
        return f" x {self.parts} (--bptt-warmup-tokens)" if self.parts > 1 else ""

    def offsets(self, turns: int) -> List[int]:
        """Steps that each part has done after so many turns."""
        offsets = [0] * self.parts
        for parts, offset, steps in self.turns[:turns]:
            for part in parts:
                offsets[part] = offset + steps
        return offsets

    def turns_until(self, offsets: List[int]) -> Optional[int]:
        """The number of turns after which the parts have done these steps; None if there is no such turn."""
        done = sum(offsets)
        turns, steps = 0, 0
        while steps < done and turns < len(self.turns):
            steps += len(self.turns[turns].parts) * self.turns[turns].steps
            turns += 1
        return turns if self.offsets(turns) == offsets else None

    def cohort(self, cohort: int) -> List[int]:
        """The streams of a cohort."""
        number = self.parts * self.groups
        bounds = [-(-c * self.streams // number) for c in (cohort, cohort + 1)]
        return list(range(*bounds))

    def cohorts(self, turn: int, group: int) -> Tuple[int, ...]:
        """The cohorts of a batch."""
        return tuple(part * self.groups + group for part in self.turns[turn].parts)

    def targets(self, stream: int, turn: int) -> Tuple[int, int]:
        """First and last + 1 target of a stream in its turn: fewer than the turn's steps, or none, at its end."""
        first, last = self.bounds[stream : stream + 2].tolist()
        _, offset, steps = self.turns[turn]
        return min(first + offset, last), min(first + offset + steps, last)

    def batches(self) -> List[List[int]]:
        """fairseq's batch sampler: one item a batch; a group without streams is an empty batch, which it replaces."""
        return [
            [turn * self.groups + group] if self.cohort(group) else []
            for turn in range(len(self.turns))
            for group in range(self.groups)
        ]


class StreamDataset(FairseqDataset):
    """The corpus of one split; ``arrange`` gives the batches. Items are whole batches of one group's block."""

    def __init__(self, split: str, corpus: Corpus, pad: int, layout: StreamLayout = None):
        self.split = split
        self.corpus = corpus
        self.pad = pad
        self.layout = layout

    def arrange(self, layout: StreamLayout, option: str) -> "StreamDataset":
        """The same corpus served that way.

        Raises:
            UserError: there are more streams than tokens, or whole sequences; names ``option``.
        """
        if layout.streams > layout.units:
            raise UserError(
                f"{option}{layout.warmup_factor}: {layout.streams} streams, but the {self.split} split has only "
                f"{layout.units} {layout.unit}; give fewer streams, or more data"
            )
        return StreamDataset(self.split, self.corpus, self.pad, layout)

    def __len__(self) -> int:
        return len(self.layout.turns) * self.layout.groups if self.layout else len(self.corpus)

    def __getitem__(self, index: int):
        turn, group = divmod(index, self.layout.groups)
        cohorts = self.layout.cohorts(turn, group)
        streams = [stream for cohort in cohorts for stream in self.layout.cohort(cohort)]
        _, offset, steps = self.layout.turns[turn]
        source = torch.full((len(streams), steps), self.pad)
        target = torch.full((len(streams), steps), self.pad)
        lengths = []
        for row, stream in enumerate(streams):
            first, last = self.layout.targets(stream, turn)
            lengths.append(last - first)
            source[row, : last - first], target[row, : last - first] = self.corpus.block(first, last)
        return {
            "id": torch.tensor(streams),
            "nsentences": len(streams),
            "ntokens": int(target.ne(self.pad).sum()),
            "net_input": {"src_tokens": source, "src_lengths": torch.tensor(lengths)},
            "target": target,
            "place": {"cohorts": cohorts, "offset": offset},
        }

    def collater(self, samples):
        """The one sample of a batch; nothing for an empty batch."""
        return samples[0] if samples else {}

    @property
    def sizes(self):
        return self.corpus.dataset.sizes

    def num_tokens(self, index: int) -> int:
        turn, group = divmod(index, self.layout.groups)
        cohorts = self.layout.cohorts(turn, group)
        return self.layout.turns[turn].steps * sum(len(self.layout.cohort(cohort)) for cohort in cohorts)

    size = num_tokens
