"""Losses in transformers' ``Trainer``. In training on these models each target counts once, and all count alike; in
evaluation those of streams. By itself:

- ``num_items_in_batch`` counts labels that nothing predicts, such as the first one behind padding.
- An evaluation's figure is the mean over batches. Of the blocks of streams the last one is shorter than the others.
- ``label_smoothing_factor`` acts outside of the model, which leaves out the last target of each block and the adaptive
  spans' penalty, and needs logits, of which an adaptive softmax gives none.
"""

import functools
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fb_fairseq.transformers.inputs import IGNORED
from fb_fairseq.transformers.streams import StreamKey


def adapt_trainer() -> None:
    """Let ``Trainer``, if it is imported, divide and smooth losses as above, but for models of labels."""
    trainer = getattr(sys.modules.get("transformers.trainer"), "Trainer", None)
    if trainer is None or hasattr(trainer, "adapted_to_fb_fairseq"):
        return
    trainer.adapted_to_fb_fairseq = True
    count, compute = trainer._get_num_items_in_batch, trainer.compute_loss

    @functools.wraps(count)
    def number_of_targets(self, batch_samples, device):
        if not _counts_targets(self.model):
            return count(self, batch_samples, device)
        key = batch_samples[0].get("past_key_values") if batch_samples else None
        if isinstance(key, StreamKey) and not torch.is_grad_enabled():  # evaluation
            return key.targets
        return count(self, [_counted(batch) for batch in batch_samples], device)

    @functools.wraps(compute)
    def loss(self, model, inputs, *args, **kwargs):
        smoother = self.label_smoother
        if smoother is None or self.compute_loss_func is not None or not _counts_targets(self.model):
            return compute(self, model, inputs, *args, **kwargs)
        self.label_smoother = None
        try:
            return compute(self, model, {**inputs, "label_smoothing": smoother.epsilon}, *args, **kwargs)
        finally:
            self.label_smoother = smoother

    trainer._get_num_items_in_batch, trainer.compute_loss = number_of_targets, loss


def _counts_targets(model: Any) -> bool:
    # (Labels of tokens are not shifted: Trainer counts them as they are.)
    return any(getattr(module, "gives_labels", None) is False for module in model.modules())


def _counted(batch: MutableMapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The labels to count of a batch, from which those of padding are taken."""
    labels = batch.get("labels")
    if labels is None or batch.get("shift_labels") is not None or labels.dim() != 2:
        return batch
    _ignore_padding(batch)
    # (Releases before 5.20 count the first label of each row, which is not predicted either.)
    return {"labels": F.pad(batch["labels"][:, 1:], (1, 0), value=IGNORED)}


def _ignore_padding(batch: MutableMapping[str, Tensor]) -> None:
    """Take the labels of padding, and those right behind it, out of a batch."""
    labels, mask = batch["labels"], batch.get("attention_mask")
    if mask is not None and mask.shape == labels.shape:
        kept_BT = mask.bool() & F.pad(mask[:, :-1].bool(), (1, 0), value=True)
        batch["labels"] = labels.masked_fill(~kept_BT, IGNORED)
