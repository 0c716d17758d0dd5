"""Rows that are not one text each: padding, packed texts, and which targets count.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

import functools
import sys
from collections.abc import Mapping, MutableMapping

import torch
import torch.nn.functional as F
from torch import Tensor

from fb_fairseq.errors import UserError

IGNORED = -100  # label of a token that does not count, as everywhere in transformers


class Padding:
    """Which tokens of a batch are padding.

    Args:
        mask_BT: 0 where the T new tokens are padding.
        age_B: see ``StreamCache``; None: the streams begin here.

    Attributes:
        left_B: number of padding tokens at the beginning.
        right: whether there is padding at an end.
    """

    def __init__(self, mask_BT: Tensor, age_B: Tensor | None, begun: bool):
        kept_BT = mask_BT.bool()
        tokens_B, T = kept_BT.sum(1), kept_BT.shape[1]
        self.left_B = torch.where(tokens_B > 0, kept_BT.int().argmax(1), T)
        steps_T = torch.arange(T, device=mask_BT.device)
        between = (steps_T >= self.left_B[:, None]) & (steps_T < (self.left_B + tokens_B)[:, None])
        if not kept_BT.equal(between):
            raise UserError("attention_mask: has padding between tokens; pad at the beginning (padding_side='left')")
        if begun and bool((self.left_B > 0).any()):
            raise UserError("attention_mask: past_key_values holds the beginning of these texts; pad only before it")
        self.right = bool((self.left_B + tokens_B < T).any())
        self.steps_T, self._age_B = steps_T, age_B

    def positions_TB(self) -> Tensor:
        """The position of each token in its text, from 0; that of padding is 0."""
        before_B = 0 if self._age_B is None else self._age_B
        return (self.steps_T[:, None] - self.left_B).clamp(min=0) + before_B


def packed_positions(position_ids: Tensor, rows: int, tokens: int) -> Tensor | None:
    """The positions [T, B] of tokens of several texts in each row; None where each row is one text, or where these are
    no positions, which ``check_positions`` finds.

    Args:
        position_ids: [B, T] or [1, T]: 0 where a text begins, and one more at each token after it.
    """
    if position_ids.dim() != 2 or position_ids.shape[1] != tokens:
        return None
    steps_BT = position_ids[:, 1:] - position_ids[:, :-1]
    goes_on, begins = steps_BT == 1, position_ids[:, 1:] == 0
    packed = (position_ids[:, 0] == 0).all() & (goes_on | begins).all() & begins.any()
    return position_ids.expand(rows, -1).t().contiguous() if bool(packed) else None


def without_padding(targets_BT: Tensor, mask: Tensor | None, shifted_here: bool) -> Tensor:
    """The targets that count: padding neither predicts nor is predicted.

    Args:
        mask: 0 for padding, [B, at least T].
        shifted_here: the target of the last position is not known, nor therefore whether it is padding.
    """
    if mask is None:
        return targets_BT
    kept_BT = mask[:, -targets_BT.shape[1] :].bool().to(targets_BT.device)
    if shifted_here:
        kept_BT = kept_BT & F.pad(kept_BT[:, 1:], (0, 1))
    return targets_BT.masked_fill(~kept_BT, IGNORED)


def count_predicted_labels(kind: type) -> None:
    """Let ``Trainer``, if it is imported, take the labels of an update that a kind of model predicts, and count these.

    It counts the first label behind padding, too, which nothing predicts, and its own losses would use it: these would
    depend on how the texts of an update are spread over batches.

    Args:
        kind: class of the models whose padding neither predicts nor is predicted.
    """
    trainer = getattr(sys.modules.get("transformers.trainer"), "Trainer", None)
    if trainer is None or hasattr(trainer._get_num_items_in_batch, "__wrapped__"):
        return
    original = trainer._get_num_items_in_batch

    @functools.wraps(original)
    def count(self, batch_samples, device):
        if not any(isinstance(module, kind) for module in self.model.modules()):
            return original(self, batch_samples, device)
        return original(self, [_predicted(batch) for batch in batch_samples], device)

    trainer._get_num_items_in_batch = count


def _predicted(batch: MutableMapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Take labels of padding, and those behind it, out of a batch; what is to be counted of it."""
    labels, mask = batch.get("labels"), batch.get("attention_mask")
    if labels is None or batch.get("shift_labels") is not None or labels.dim() != 2:
        return batch
    if mask is not None and mask.shape == labels.shape:
        kept_BT = mask.bool() & F.pad(mask[:, :-1].bool(), (1, 0), value=True)
        batch["labels"] = labels = labels.masked_fill(~kept_BT, IGNORED)
    # (Releases before 5.20 count the first label of each row, which is not predicted either.)
    return {"labels": F.pad(labels[:, 1:], (1, 0), value=IGNORED)}
