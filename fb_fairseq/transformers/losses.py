"""The loss that the models give for labels, and which labels count."""

import torch.nn.functional as F
from torch import Tensor

from fb_fairseq.modules.adaptive_losses import adaptive_losses
from fb_fairseq.modules.language_model import OutputLayer
from fb_fairseq.transformers.inputs import IGNORED


def mean_loss(
    decoder: OutputLayer,
    features_BTD: Tensor,
    targets_BT: Tensor,
    number: float | Tensor | None,
    *,
    penalty: Tensor | None = None,
    smoothing: float = 0.0,
) -> Tensor:
    """Mean loss in nats per token.

    Args:
        decoder: the model's output layer.
        features_BTD: what it reads.
        targets_BT: ``IGNORED`` where none counts.
        number: number of targets to divide by; None: of those that count.
        penalty: to be added for each target.
        smoothing: the share of the mean over all tokens of the vocabulary.
    """
    targets_BT = targets_BT.to(features_BTD.device)
    counted_BT = targets_BT != IGNORED
    targets_BT = targets_BT.masked_fill(~counted_BT, 0)
    if decoder.adaptive_softmax is not None and not smoothing:
        total = adaptive_losses(decoder.adaptive_softmax, features_BTD, targets_BT, counted_BT, True)[0].sum()
    else:
        logits = decoder.logits(features_BTD).flatten(0, 1).float()
        losses = F.cross_entropy(logits, targets_BT.flatten(), reduction="none", label_smoothing=smoothing)
        total = (losses * counted_BT.flatten()).sum()
    if penalty is not None:
        total = total + counted_BT.sum() * penalty
    return total / (counted_BT.sum().clamp(min=1) if number is None else number)


def without_padding(targets_BT: Tensor, mask: Tensor | None, shifted_here: bool) -> Tensor:
    """The targets that count: padding neither predicts nor is predicted.

    Args:
        targets_BT: the targets; ``IGNORED`` for those that do not count anyway.
        mask: 0 for padding, [B, at least T]; None: there is none.
        shifted_here: the target of the last position is not known, nor therefore whether it is padding.
    """
    if mask is None:
        return targets_BT
    kept_BT = mask[:, -targets_BT.shape[1] :].bool().to(targets_BT.device)
    if shifted_here:
        kept_BT = kept_BT & F.pad(kept_BT[:, 1:], (0, 1))
    return targets_BT.masked_fill(~kept_BT, IGNORED)
