"""BPTT warm-up (Fan et al. 2020, v1 §3.2): blocks start short and many, and become long and few.

A static schedule: what is served in an iteration of an epoch follows from the options and the data alone, so that
processes agree and a resumed run goes on where it was.
"""

from typing import NamedTuple

from fb_fairseq.errors import UserError


class BlockLengths(NamedTuple):
    """M steps a block; with warm-up ``first`` steps, doubled every ``every`` iterations until they are M.

    An iteration is an update's work: a batch of every process, ``--update-freq`` times.
    """

    full: int
    first: int = 0
    every: int = 0

    def at(self, iteration: int) -> int:
        """Steps of a block in an iteration, counted from 0 over all epochs."""
        return min(self.full, self.first << (iteration // self.every)) if self.every else self.full

    def over(self, iteration: int) -> bool:
        """Whether blocks have their full length from this iteration on."""
        return self.at(iteration) == self.full

    @staticmethod
    def from_options(cfg) -> "BlockLengths":
        """
        Raises:
            UserError: the options of the warm-up contradict each other or ``--tokens-per-sample``.
        """
        full, first, every = cfg.tokens_per_sample, cfg.bptt_warmup_tokens, cfg.bptt_warmup_iterations
        if not first and not every:
            return BlockLengths(full)
        if first < 1 or every < 1:
            raise UserError(
                f"--bptt-warmup-tokens {first} and --bptt-warmup-iterations {every}: give both, 1 or more, or neither"
            )
        times = full // first
        if first * times != full or times & (times - 1):
            raise UserError(
                f"--bptt-warmup-tokens {first}: doubling it never gives --tokens-per-sample {full}; give "
                f"{full} divided by 2, 4, 8, …"
            )
        return BlockLengths(full, first, every)
