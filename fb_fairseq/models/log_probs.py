"""Decoders of fairseq whose adaptive softmax obeys ``--temperature``."""

from typing import Any

import torch
from torch import Tensor

LOG_PROBS = "log_probs"  # the entry of a decoder's second output that says what the first one is
Output = tuple[Tensor, dict[str, Any]]


class DecodesLogProbs:
    """Base of fairseq decoders: with an adaptive softmax, decoding returns log-probabilities in the place of features.

    A decoder has ``adaptive_softmax``, fairseq's or None, and ``output_layer(features)``, as fairseq's decoders do.

    fairseq's generator divides what a decoder returns by the temperature before the softmax. Features divided by it
    would change head and tail clusters each in its own way.
    """

    def output(self, features: Tensor, extra: dict[str, Any], incremental_state: dict | None, only: bool) -> Output:
        """A decoder's output.

        Args:
            features: [B, T, D].
            extra: the second output.
            incremental_state: None in training and scoring, where criterions need features.
            only: return features in any case.
        """
        if only:
            return features, extra
        if incremental_state is None or self.adaptive_softmax is None:
            return self.output_layer(features), extra
        return self.adaptive_softmax.get_log_prob(features, None), {**extra, LOG_PROBS: True}

    def get_normalized_probs(self, net_output: Output, log_probs: bool, sample: dict | None = None) -> Tensor:
        """Probabilities or their logarithms [B, T, V].

        Args:
            net_output: see ``output``; its log-probabilities may have been divided by a temperature τ: then
                the result is p^(1/τ) / Σ p^(1/τ), the softmax at that temperature.
            log_probs: whether logarithms come back.
            sample: of targets, for the adaptive softmax of features.
        """
        if net_output[1] and net_output[1].get(LOG_PROBS):
            return (torch.log_softmax if log_probs else torch.softmax)(net_output[0].float(), -1)
        return super().get_normalized_probs(net_output, log_probs, sample)
