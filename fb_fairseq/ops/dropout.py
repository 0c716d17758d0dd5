"""Dropout with masks that are drawn beforehand."""

from typing import NamedTuple

import torch
from torch import Tensor

DRAWN_AT_ONCE = 1 << 22  # entries of a mask


class Dropout(NamedTuple):
    """A dropout mask, drawn beforehand: ``keep`` (bool, in the shape of what it masks), and the scale 1 / (1 - p)."""

    keep: Tensor
    scale: float

    def at(self, *index: int) -> "Dropout":
        """The mask of one layer, or of one layer and step."""
        return Dropout(self.keep[index], self.scale)


def draw_dropout(p: float, shape, like: Tensor) -> Dropout | None:
    """A mask of that shape on ``like``'s device, each entry kept with probability 1 - p; None where p is 0.

    The random numbers, which take four times the memory of the mask, are drawn in pieces of ``DRAWN_AT_ONCE``.
    """
    if p == 0:
        return None
    keep = torch.empty(shape, dtype=torch.bool, device=like.device)
    for piece in keep.view(-1).split(DRAWN_AT_ONCE):
        torch.ge(torch.rand(piece.shape, device=like.device), p, out=piece)
    return Dropout(keep, 1 / (1 - p))


def dropout(x: Tensor, mask: Dropout | None) -> Tensor:
    """``x`` with dropped entries zero and kept ones scaled; ``x`` itself without a mask."""
    return x if mask is None else x * mask.keep * mask.scale
