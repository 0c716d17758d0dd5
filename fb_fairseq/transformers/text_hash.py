"""Hashes of the tokens that a memory has read, by which it knows its text again."""

from typing import Any

import torch
from torch import Tensor


class TextHash:
    """A hash of the tokens that were read, of each of B texts. Its size is constant, and adding tokens takes no time on
    a GPU until it is asked for.

    Attributes:
        known: whether all tokens are known.
    """

    PENDING = 256  # pieces of text that are added up together

    def __init__(self, known: bool = True) -> None:
        self.known, self._tokens = known, 0
        self._sum_B: Tensor | int = 0
        self._pending: list[Tensor] = []

    @staticmethod
    def of(tokens_BT: Tensor, start: int) -> Tensor:
        """The hash [B] of tokens from position ``start`` on. The hashes of two parts add up to that of the whole."""
        positions_T = torch.arange(start + 1, start + 1 + tokens_BT.shape[1], device=tokens_BT.device)
        x = tokens_BT.long() + positions_T * -0x61C8864680B583EB  # (integers overflow, as they do in all hashes)
        x = (x ^ (x >> 32)) * -0x2D0E5C6B5B2F9D4B
        return ((x ^ (x >> 29)) * 0x165667B19E3779F9).sum(1)

    def add(self, tokens_BT: Tensor | None) -> None:
        """Add the tokens that are read next; None: they are not known."""
        self.known = self.known and tokens_BT is not None
        if self.known:
            self._pending.append(tokens_BT)
            if len(self._pending) == self.PENDING:
                self.value()

    def value(self) -> Tensor | int:
        """The hash [B] of all tokens; 0 before the first one."""
        if self._pending:
            tokens_BT = torch.cat(self._pending, 1)
            self._pending = []
            self._sum_B = self._sum_B + self.of(tokens_BT, self._tokens)
            self._tokens += tokens_BT.shape[1]
        return self._sum_B

    def reorder(self, order: Tensor) -> None:
        """Take the texts in another order."""
        self._sum_B = in_order(self.value(), order)


def in_order(values_B: Any, order: Tensor) -> Any:
    """The values of B texts in another order; a value that is no tensor is the same for all texts."""
    return values_B[order.to(values_B.device)] if isinstance(values_B, Tensor) else values_B
