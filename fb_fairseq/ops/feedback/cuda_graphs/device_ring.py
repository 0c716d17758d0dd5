"""The slots of a captured decoding step."""

import torch
from torch import Tensor

from fb_fairseq.ops.feedback.ring import MemoryRing


class DeviceRing(MemoryRing):
    """A ring whose number of steps, ``seen_1``, is on the device. A step works on all its slots, filled or not.

    Args:
        ring: one with slots of the same shapes.
        streams: number of streams.
    """

    def __init__(self, ring: MemoryRing, streams: int):
        super().__init__(ring.span, ring.storage)
        self.slots = ring.slots
        self.buffer = ring.buffer.new_zeros(len(ring.buffer), streams, *ring.buffer.shape[2:])
        if ring.age_B is not None:
            self.age_B = ring.age_B.new_zeros(streams)
        self.seen_1 = torch.zeros(1, dtype=torch.long, device=self.buffer.device)

    @property
    def used(self) -> int:
        return self.slots

    def distances(self, device: torch.device) -> Tensor:
        return (self.seen_1 - 1 - torch.arange(self.slots, device=device)) % self.span + 1

    def filled(self, like: Tensor) -> Tensor | None:
        return (torch.arange(self.slots, device=like.device) < self.seen_1).to(like.dtype)[None]

    def write(self, new: Tensor) -> None:
        self.buffer.index_copy_(-2, self.seen_1 % self.span, new.unsqueeze(-2))

    def copy_slots(self, ring: MemoryRing) -> None:
        """Copy another ring's slots to the first streams of this one."""
        ring.settle()
        self.buffer[:, : ring.buffer.shape[1]].copy_(ring.buffer)
        if ring.age_B is not None:
            self.age_B[: len(ring.age_B)].copy_(ring.age_B)
