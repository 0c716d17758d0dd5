"""The loss that the models give for labels."""

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
    counted_BT = targets_BT != IGNORED
    targets_BT = targets_BT.to(features_BTD.device).masked_fill(~counted_BT, 0)
    if decoder.adaptive_softmax is not None and not smoothing:
        total = adaptive_losses(decoder.adaptive_softmax, features_BTD, targets_BT, counted_BT, True)[0].sum()
    else:
        logits = decoder.logits(features_BTD).flatten(0, 1).float()
        losses = F.cross_entropy(logits, targets_BT.flatten(), reduction="none", label_smoothing=smoothing)
        total = (losses * counted_BT.flatten()).sum()
    if penalty is not None:
        total = total + counted_BT.sum() * penalty
    return total / (counted_BT.sum().clamp(min=1) if number is None else number)
