"""The slots that the steps of a block look at: by slot, and by their distance from the step."""

import torch
import torch.nn.functional as F
from torch import Tensor


def by_slot(x_TS: Tensor, slots: int) -> Tensor:
    """Reindex from distances to slots: row t is shifted t columns to the right. [..., T, S] to [..., T, C].

    With T = 3 and S = 4::

        distance  4 3 2 1        slot  0 1 2 3 4 5
        t = 0     a b c d              a b c d . .
        t = 1     e f g h     →        . e f g h .
        t = 2     i j k l              . . i j k l

    Slots out of reach (dots) get zero.

    Args:
        slots: C. Of the S + T - 1 columns above the last C are kept; if there are more slots, zeros go before them.
    """
    T, S = x_TS.shape[-2:]
    width = S + T - 1
    # Rows of width S + T in memory, read as rows of width S + T - 1: each begins one column further right.
    shifted = F.pad(x_TS, (0, T)).flatten(-2)[..., : T * width].unflatten(-1, (T, width))
    return shifted[..., width - slots :] if slots <= width else F.pad(shifted, (slots - width, 0))


def by_distance(x_TC: Tensor, span: int) -> Tensor:
    """The inverse of ``by_slot``: row t is shifted t columns to the left. [..., T, C] to [..., T, S].

    With T = 3 and S = 4::

        slot  0 1 2 3 4 5        distance  4 3 2 1
              a b c d x x        t = 0     a b c d
              x e f g h x     →  t = 1     e f g h
              x x i j k l        t = 2     i j k l
    """
    T, C = x_TC.shape[-2:]
    width = span + T - 1
    x_TC = F.pad(x_TC, (width - C, 0))  # a negative pad crops slots that no query reaches
    return F.pad(x_TC.flatten(-2), (0, T)).unflatten(-1, (T, width + 1))[..., :span]


def slots_of_episode(age_TB: Tensor, slots: int) -> Tensor:
    """The slots of ``block_attention`` that belong to a stream's episode at each step: [B, 1, T, C]."""
    T, device = len(age_TB), age_TB.device
    distance_TC = slots - T + 1 + torch.arange(T, device=device)[:, None] - torch.arange(slots, device=device)
    return (distance_TC <= age_TB.t()[:, :, None])[:, None]
