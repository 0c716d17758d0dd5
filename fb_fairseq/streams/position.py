"""How far a run has come within an epoch, as checkpoints record it."""

from typing import Any, NamedTuple

from fb_fairseq.errors import UserError
from fb_fairseq.streams.layout import StreamLayout

START_ANEW = "or start the epoch anew with --reset-dataloader"


class StreamPosition(NamedTuple):
    """A point in mid-epoch, and what identifies the run's data and streams there (terms: see ``StreamLayout``).

    The names of the fields are keys in checkpoints and memory files.
    """

    epoch: int
    turns: int  # finished turns
    offsets: list[int]  # steps of each part that were read
    streams: int  # number of streams
    tokens: int  # number of targets in the split
    fingerprint: int  # checksum of the split

    @classmethod
    def from_checkpoint(cls, saved: Any) -> "StreamPosition":
        """A position as ``as_dict`` gives it."""
        is_whole = isinstance(saved, dict) and set(saved) == set(cls._fields)
        offsets = saved["offsets"] if is_whole else None
        numbers = [value for name, value in saved.items() if name != "offsets"] if is_whole else []
        if not (isinstance(offsets, list) and offsets and all(map(_is_count, [*numbers, *offsets]))):
            raise UserError(
                f"--restore-file: the checkpoint's position in the epoch is damaged; give an intact one, {START_ANEW}"
            )
        return cls(**saved)

    def as_dict(self) -> dict[str, Any]:
        """The form in which checkpoints and memory files hold it."""
        return self._asdict()

    def check(self, layout: StreamLayout, split: str, fingerprint: int) -> None:
        """Check that a run with this layout can resume here.

        Batch size, processes and ``--update-freq`` may differ from the saved run as long as their product is the same.

        Args:
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


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63  # fits 64 bits
