"""lm_loss: what it adds up."""

import argparse
import math

import pytest
import torch
import torch.nn.functional as F
from fairseq.logging import metrics

from fb_fairseq.commands.preprocess_bytes import byte_dictionary
from fb_fairseq.criterions import LanguageModelLoss


class Fixed(torch.nn.Module):
    """A model with given logits."""

    def __init__(self, logits):
        super().__init__()
        self.logits = logits
        object.__setattr__(self, "decoder", argparse.Namespace(adaptive_softmax=None))

    def forward(self, src_tokens):
        return self.logits, {}

    def get_normalized_probs(self, net_output, log_probs, sample=None):
        return F.log_softmax(net_output[0], -1)

    def get_targets(self, sample, net_output):
        return sample["target"]


@pytest.fixture
def criterion():
    return LanguageModelLoss(argparse.Namespace(target_dictionary=byte_dictionary(), byte_data=True))


def test_sums(criterion):
    target = torch.tensor([[10, 11, 2], [12, 1, 1]])  # five bytes and </s>, of which two are padding
    logits = torch.randn(2, 3, 260)
    logits[0, 0, 10] = 50  # one right
    sample = {"target": target, "ntokens": 4, "net_input": {"src_tokens": target}}
    loss, size, logged = criterion(Fixed(logits), sample)
    by_hand = -sum(logits[b, t].log_softmax(0)[target[b, t]].item() for b, t in ((0, 0), (0, 1), (0, 2), (1, 0)))
    assert loss.item() == pytest.approx(by_hand, rel=1e-6) and size == 4
    assert logged["correct"] == 1 and logged["bytes"] == 3 and logged["loss"].dtype == torch.double
    with metrics.aggregate(new_root=True) as agg:
        LanguageModelLoss.reduce_metrics([logged, logged])
        values = agg.get_smoothed_values()
    bits = by_hand / math.log(2)
    assert values["loss"] == pytest.approx(bits / 4, abs=6e-4)
    assert values["ppl"] == pytest.approx(2 ** (bits / 4), rel=1e-3)
    assert values["accuracy"] == 25
    assert values["total_bits"].item() == pytest.approx(2 * bits, rel=1e-6)
    assert values["total_tokens"] == 8 and values["total_bytes"] == 6
    assert values["bpb"] == pytest.approx(bits / 3, abs=6e-5)


@pytest.mark.parametrize("tied", [False, True])
def test_adaptive_softmax_is_exact(tied):
    """Every word of every cluster counts, padding does not: the loss is that of the full distribution."""
    from fairseq.modules import AdaptiveInput, AdaptiveSoftmax

    from fb_fairseq.ops.adaptive_softmax import adaptive_losses

    inputs = AdaptiveInput(30, 1, 8, 2, 8, [10, 20])
    softmax = AdaptiveSoftmax(30, 8, [10, 20], dropout=0.0, factor=2, adaptive_inputs=inputs if tied else None)
    features = torch.randn(3, 12, 8, requires_grad=True)
    target = torch.stack([torch.arange(0, 12), torch.arange(12, 24), torch.cat([torch.arange(24, 30), torch.ones(6)])])
    target = target.long()
    counted = target.ne(1)
    losses, correct = adaptive_losses(softmax, features, target, counted, training=False, rows=7)
    full = softmax.get_log_prob(features, None)
    expected = -full.gather(2, target[..., None])[..., 0] * counted
    torch.testing.assert_close(losses.view(3, 12), expected, atol=1e-5, rtol=1e-5)
    assert correct.equal(full.argmax(-1).eq(target))
    # fairseq's get_log_prob has no gradient, so once more by hand: head, and tails under their cluster's share
    rows = features.flatten(0, 1)
    head = softmax.head(rows).log_softmax(-1)
    tails = [tail(rows).log_softmax(-1) + head[:, 10 + i : 11 + i] for i, tail in enumerate(softmax.tail)]
    by_hand = torch.cat([head[:, :10], *tails], 1).view(3, 12, 30)
    torch.testing.assert_close(by_hand, full, atol=1e-5, rtol=1e-5)
    total = -(by_hand.gather(2, target[..., None])[..., 0] * counted).sum()
    for one, other in zip(
        *(torch.autograd.grad(y, [features, softmax.tail[1][0].weight]) for y in (losses.sum(), total))
    ):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
    assert adaptive_losses(softmax, features, target, counted, training=True)[1] is None
