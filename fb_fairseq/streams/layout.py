"""Cut a corpus into parallel streams, and streams into blocks, so that every target comes once and in order.

BPTT warm-up (Fan et al. 2020, arXiv 2002.09402v1, §3.2) starts with many short blocks and ends with few long ones. The
schedule is static: what an iteration serves depends only on the options and the data, so processes agree without
communication, and a resumed run continues the schedule.
"""

from typing import Any, NamedTuple

import numpy as np

from fb_fairseq.errors import UserError


class BlockLengths(NamedTuple):
    """The length of blocks (in time steps) as a function of the training iteration.

    Without warm-up it is always ``full``. With warm-up it starts at ``initial`` and doubles every ``double_every``
    iterations until it reaches ``full``.

    Iterations are counted from 0 over all epochs. One iteration is the work of one update: ``--update-freq`` batches
    on each process.
    """

    full: int
    initial: int = 0
    double_every: int = 0

    def at(self, iteration: int) -> int:
        """The length of blocks in an iteration."""
        if not self.double_every:
            return self.full
        return min(self.full, self.initial << (iteration // self.double_every))

    def is_full(self, iteration: int) -> bool:
        """Whether blocks have their full length from this iteration on."""
        return self.at(iteration) == self.full

    @staticmethod
    def from_options(cfg: Any) -> "BlockLengths":
        """Read the block lengths from the options of ``streaming_lm``."""
        full, initial, every = cfg.tokens_per_sample, cfg.bptt_warmup_tokens, cfg.bptt_warmup_iterations
        if not initial and not every:
            return BlockLengths(full)
        if initial < 1 or every < 1:
            raise UserError(
                f"--bptt-warmup-tokens {initial} and --bptt-warmup-iterations {every}: give both, 1 or more, or neither"
            )
        ratio = full // initial
        is_power_of_two = ratio > 0 and ratio & (ratio - 1) == 0
        if initial * ratio != full or not is_power_of_two:
            raise UserError(
                f"--bptt-warmup-tokens {initial}: doubling it never gives --tokens-per-sample {full}; give {full} "
                "divided by 2, 4, 8, …"
            )
        return BlockLengths(full, initial, every)


class Turn(NamedTuple):
    """The part of the corpus that one training iteration serves.

    Attributes:
        parts: the parts whose streams are read.
        offset: how many steps of these streams were read before.
        steps: the length of the block.
    """

    parts: range
    offset: int
    steps: int


class Batch(NamedTuple):
    """One group's share of a turn, which one batch serves.

    Attributes:
        cohorts: the cohorts whose streams are read.
        streams: their streams, cohort by cohort: the rows of the batch.
        offset, steps: as in the ``Turn``.
    """

    cohorts: tuple[int, ...]
    streams: list[int]
    offset: int
    steps: int


class StreamLayout:
    """Assigns the targets of a corpus to streams, turns and batches, for one pass (epoch).

    The corpus is cut into equally long **streams**: stream b predicts the targets ``bounds[b]`` to
    ``bounds[b + 1] - 1``. In each **turn** (one training iteration, in the order of time) streams advance by one block.
    A turn consists of one batch for each **group** of streams: there are as many groups as processes x
    ``--update-freq``. For example 4 streams in 2 groups, in blocks of M steps (the last one is shorter)::

                             time ->
                             |<- M ->|
        group 0  stream 0    |   0   |   1   |   2   | 3 |     (the number of the turn)
                 stream 1    |   0   |   1   |   2   | 3 |
        group 1  stream 2    |   0   |   1   |   2   | 3 |
                 stream 3    |   0   |   1   |   2   | 3 |

    BPTT warm-up starts with shorter blocks and keeps the number of targets per turn. So a pass that begins with blocks
    of M / n steps has n times as many streams, in n **parts**. It keeps its streams to its end. When blocks get longer,
    fewer streams fit into a turn, and parts are served alternately. For example n = 2, and full length from turn 2 on::

                             time ->
                             |M/2|M/2|<- M ->|
        part 0   cohort 0    | 0 | 1 |   2   |   4   |         group 0: streams 0 and 1
                 cohort 1    | 0 | 1 |   2   |   4   |         group 1: streams 2 and 3
        part 1   cohort 2    | 0 | 1 |   3   |   5   |         group 0: streams 4 and 5
                 cohort 3    | 0 | 1 |   3   |   5   |         group 1: streams 6 and 7

    A **cohort** is the streams that part p and group g have in common: they are always in the same batch. Its number is
    ``p * groups + g``. The batch of group g in turn t has the number ``t * groups + g``. fairseq deals batches to
    processes in rotation, so each process gets the same groups in every turn.

    Args:
        tokens: the number of targets.
        streams_per_turn: how many streams a turn serves when blocks have their full length.
        groups: the number of batches in a turn.
        lengths: the lengths of blocks.
        start: the number of training iterations before this pass.
        ends: where each sequence of the corpus ends (exclusive), if streams must consist of whole sequences.

    Attributes:
        parts: the number of parts.
        streams: the number of streams, in all parts.
        bounds: where streams begin, and the last one ends [streams + 1].
        turns: the turns of the pass, in their order.
        unit: what a stream needs one of, at least: ``tokens`` or ``sequences``.
        max_streams: how many of them the corpus has.
    """

    def __init__(
        self,
        tokens: int,
        streams_per_turn: int,
        groups: int,
        lengths: BlockLengths,
        *,
        start: int = 0,
        ends: np.ndarray | None = None,
    ):
        self.tokens = tokens
        self.groups = groups
        self.lengths = lengths
        self.parts = lengths.full // lengths.at(start)
        self.streams = streams_per_turn * self.parts
        self.unit, self.max_streams = ("tokens", tokens) if ends is None else ("sequences", len(ends))
        self.bounds = np.arange(self.streams + 1, dtype=np.int64) * self.max_streams // self.streams
        if ends is not None:
            self.bounds = np.concatenate([[0], ends])[self.bounds]
        self.turns = self._plan_turns(start)

    def _plan_turns(self, start: int) -> list[Turn]:
        longest = np.diff(self.bounds).reshape(self.parts, -1).max(1).tolist()  # stream of each part, in steps
        offsets = [0] * self.parts
        turns: list[Turn] = []
        next_part = 0  # always a multiple of the number of parts in a turn, also after that number is halved
        while any(offset < end for offset, end in zip(offsets, longest)):
            block = self.lengths.at(start + len(turns))
            parts = range(next_part, next_part + self.lengths.full // block)
            next_part = parts.stop % self.parts
            steps = min(block, max(longest[parts.start : parts.stop]) - offsets[parts.start])
            if steps > 0:
                turns.append(Turn(parts, offsets[parts.start], steps))
            for part in parts:
                offsets[part] += block
        return turns

    @property
    def warmup_factor(self) -> str:
        """For error messages: the factor by which the warm-up multiplies the number of streams."""
        return f" x {self.parts} (--bptt-warmup-tokens)" if self.parts > 1 else ""

    def offsets(self, turns: int) -> list[int]:
        """The number of steps of each part that were read after the first ``turns`` turns."""
        offsets = [0] * self.parts
        for parts, offset, steps in self.turns[:turns]:
            for part in parts:
                offsets[part] = offset + steps
        return offsets

    def turns_until(self, offsets: list[int]) -> int | None:
        """The inverse of ``offsets``: after how many turns it has this value; None if it never has."""
        wanted = sum(offsets)
        turns, steps = 0, 0
        while steps < wanted and turns < len(self.turns):
            steps += len(self.turns[turns].parts) * self.turns[turns].steps
            turns += 1
        return turns if self.offsets(turns) == offsets else None

    def cohort(self, cohort: int) -> list[int]:
        """The streams of a cohort."""
        cohorts = self.parts * self.groups
        first, last = (-(-c * self.streams // cohorts) for c in (cohort, cohort + 1))
        return list(range(first, last))

    def part_of(self, cohort: int) -> int:
        """The part that a cohort belongs to."""
        return cohort // self.groups

    def cohorts_of_process(self, rank: int, processes: int) -> list[int]:
        """All cohorts of the groups that fairseq gives to a process."""
        groups = range(rank, self.groups, processes)
        return [part * self.groups + group for part in range(self.parts) for group in groups]

    def batch(self, index: int) -> Batch:
        """The share of the batch with this number."""
        number, group = divmod(index, self.groups)
        turn = self.turns[number]
        cohorts = tuple(part * self.groups + group for part in turn.parts)
        streams = [stream for cohort in cohorts for stream in self.cohort(cohort)]
        return Batch(cohorts, streams, turn.offset, turn.steps)

    def targets(self, stream: int, offset: int, steps: int) -> tuple[int, int]:
        """The first and last + 1 target of a stream's block; fewer than ``steps`` of them, or none, at its end."""
        first, last = self.bounds[stream : stream + 2].tolist()
        return min(first + offset, last), min(first + offset + steps, last)

    def batches(self) -> list[list[int]]:
        """The batch sampler for fairseq: one item (see ``StreamDataset``) per batch.

        If there are fewer streams than groups, groups without a stream get empty batches, in whose place fairseq runs a
        dummy batch.
        """
        return [
            [turn * self.groups + group] if self.cohort(group) else []
            for turn in range(len(self.turns))
            for group in range(self.groups)
        ]
