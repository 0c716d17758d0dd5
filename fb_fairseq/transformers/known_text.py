"""The text that a memory has read, which is known again by a hash of its tokens."""

from typing import Any

import torch
from torch import Tensor

from fb_fairseq.errors import UserError

PENDING = 256  # single tokens that are added up together: this takes time on a GPU


class KnownText:
    """The tokens that were read, of each of B texts. Its size is constant.

    Args:
        complete: whether all tokens are known so far.

    Attributes:
        start: number of tokens that were read before the text begins that ``generate`` was given last.
    """

    def __init__(self, complete: bool) -> None:
        self.start = 0
        self._complete = complete
        self._tokens = 0
        self._hash_B: Tensor | int = 0
        self._hash_before_B: Tensor | int = 0  # of what is before ``start``
        self._pending: list[Tensor] = []

    def add(self, tokens_BT: Tensor | None) -> None:
        """Add the tokens that were read; None: they are not known."""
        self._complete = self._complete and tokens_BT is not None
        if self._complete:
            self._pending.append(tokens_BT.clone())  # the caller may put others into its own
            if tokens_BT.shape[1] > 1 or len(self._pending) == PENDING:
                self._add_up()

    def begin(self, tokens_BT: Tensor, position: int) -> None:
        """Find out where the input of ``generate`` begins, its new ``start``.

        That is where it began before, if the input begins with all that was read since then; or at 0, if it begins with
        all that was read; or else after what was read: the input are new tokens alone.

        Args:
            tokens_BT: the input.
            position: number of tokens read.
        """
        self._add_up()
        if self._begins_with_read(tokens_BT, position, self.start, self._hash_before_B):
            return
        if self._begins_with_read(tokens_BT, position, 0, 0):
            self.start = 0
            self._hash_before_B = 0
        else:
            self.start = position
            self._hash_before_B = self._hash_B

    def _begins_with_read(self, tokens_BT: Tensor, position: int, start: int, before_B: Tensor | int) -> bool:
        """Whether texts begin with all that was read from ``start`` on, and have more than that.

        Args:
            tokens_BT: the texts.
            position: number of tokens read.
            start: of the first one that counts.
            before_B: the hash of what is before it.
        """
        length = position - start
        if not self._complete or not 0 < length <= tokens_BT.shape[1]:
            return False
        begins_B = hash_of(tokens_BT[:, :length].to(self._hash_B.device), start) == self._hash_B - before_B
        if not bool(begins_B.any()):
            return False
        if not bool(begins_B.all()):
            raise UserError(
                "input_ids: some rows begin with the text that past_key_values has read, and others do not; give "
                "whole texts"
            )
        if length == tokens_BT.shape[1]:
            raise UserError(
                "past_key_values: has read this text already; give the tokens that follow it, too, or a copy that "
                "has not"
            )
        return True

    def reorder(self, order: Tensor) -> None:
        """Take the texts in another order."""
        self._add_up()
        self._hash_B = in_order(self._hash_B, order)
        self._hash_before_B = in_order(self._hash_before_B, order)

    def _add_up(self) -> None:
        """Bring the hash up to date."""
        if self._pending:
            tokens_BT = torch.cat(self._pending, 1)
            self._pending = []
            self._hash_B = self._hash_B + hash_of(tokens_BT, self._tokens)
            self._tokens += tokens_BT.shape[1]


def hash_of(tokens_BT: Tensor, start: int) -> Tensor:
    """The hash [B] of tokens from position ``start`` on. The hashes of two parts add up to that of the whole."""
    positions_T = torch.arange(start + 1, start + 1 + tokens_BT.shape[1], device=tokens_BT.device)
    x = tokens_BT.long() + positions_T * -0x61C8864680B583EB  # (integers overflow, as they do in all hashes)
    x = (x ^ (x >> 32)) * -0x2D0E5C6B5B2F9D4B
    return ((x ^ (x >> 29)) * 0x165667B19E3779F9).sum(1)


def in_order(values_B: Any, order: Tensor) -> Any:
    """The values of B texts in another order; a value that is no tensor is the same for all texts."""
    return values_B[order.to(values_B.device)] if isinstance(values_B, Tensor) else values_B
