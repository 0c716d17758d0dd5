"""BPTT warm-up (Fan et al. 2020, arXiv 2002.09402v1, §3.2): start with many short blocks, end with few long ones.

The schedule is static: what an iteration serves depends only on the options and the data, so processes agree without
communication, and a resumed run continues the schedule."""

from typing import Any, NamedTuple

from fb_fairseq.errors import UserError


class BlockLengths(NamedTuple):
    """The length of blocks (in time steps) as a function of the training iteration.

    Without warm-up it is always ``full``. With warm-up it starts at ``initial`` and doubles every ``double_every``
    iterations until it reaches ``full``.

    Iterations are counted from 0 over all epochs. One iteration is the work of one update: ``--update-freq`` batches
    on each process."""

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
                f"--bptt-warmup-tokens {initial}: doubling it never gives --tokens-per-sample {full}; give "
                f"{full} divided by 2, 4, 8, …"
            )
        return BlockLengths(full, initial, every)
