"""The memory of a captured decoding step.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

from typing import Optional

import torch
from torch import Tensor

from fb_fairseq.ops.feedback.decoding.ring import MemoryRing


class DeviceRing(MemoryRing):
    """A ring whose number of steps is on the device. A step works on all its slots, filled or not.

    Args:
        ring: one with slots of the same shapes.
        streams: number of streams.
    """

    def __init__(self, ring: MemoryRing, streams: int):
        super().__init__(ring.span)
        ring.copy_for(streams, self)
        self._position_1 = torch.zeros(1, dtype=torch.long, device=self.buffer.device)

    def before_replay(self, position: int) -> None:
        """Tell the captured step how many steps came before it."""
        self._position_1.fill_(position)

    @property
    def used(self) -> int:
        """See ``MemoryRing``."""
        return self.slots

    @property
    def seen_1(self) -> Tensor:
        """The number of steps so far, on the device."""
        return self._position_1

    def distances(self, device: torch.device) -> Tensor:
        """See ``MemoryRing``."""
        return (self._position_1 - 1 - torch.arange(self.slots, device=device)) % self.span + 1

    def filled(self, like: Tensor) -> Optional[Tensor]:
        """See ``MemoryRing``."""
        return (torch.arange(self.slots, device=like.device) < self._position_1).to(like.dtype)[None]

    def write(self, new: Tensor) -> None:
        """See ``MemoryRing``."""
        self.buffer.index_copy_(-2, self._position_1 % self.span, new.unsqueeze(-2))
