"""How far a run has come in an epoch, as checkpoints and memory files keep it."""

from typing import NamedTuple

from fb_fairseq.errors import UserError
from fb_fairseq.streams.layout import StreamLayout

START_ANEW = "or start the epoch anew with --reset-dataloader"


class StreamPosition(NamedTuple):
    """A place in an epoch of training, at which a run can resume.

    Attributes:
        epoch: counted from 1.
        turns: finished turns.
        offsets: steps of each part of the streams that were read.
        streams: number of streams.
        tokens: number of targets in the split.
        fingerprint: checksum of the split.
    """

    epoch: int
    turns: int
    offsets: list[int]
    streams: int
    tokens: int
    fingerprint: int

    def check(self, layout: StreamLayout, split: str, fingerprint: int) -> None:
        """Check that a run with this layout can resume here.

        Batch size, processes and ``--update-freq`` may differ from the saved run as long as their product is the same.

        Args:
            layout: that of the run.
            split: the name of the split, for the error message.
            fingerprint: the checksum of the split.
        """
        if self.streams != layout.streams:
            raise UserError(
                f"--batch-size x processes x --update-freq{layout.warmup_factor} is {layout.streams} streams; the "
                f"checkpoint was saved in mid-epoch with {self.streams}; use the same product, {START_ANEW}"
            )
        if (self.tokens, self.fingerprint) != (layout.tokens, fingerprint):
            raise UserError(
                f"the {split} split ({layout.tokens} tokens) is not the one that the checkpoint was saved with in "
                f"mid-epoch ({self.tokens} tokens); use the same data, {START_ANEW}"
            )
        if layout.turns_until(self.offsets) is None:
            raise UserError(
                f"--tokens-per-sample {layout.lengths.full} (or the BPTT warm-up): no block starts where the "
                f"checkpoint was saved (step {max(self.offsets)} of the epoch); use the old values, {START_ANEW}"
            )
