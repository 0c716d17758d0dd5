"""The sums of lm_loss, and the measures computed from them."""

import argparse
import math

import pytest
import torch
import torch.nn.functional as F
from fairseq.logging import metrics

from fb_fairseq.commands.preprocess_bytes import byte_dictionary
from fb_fairseq.criterions import LanguageModelLoss, summed


class Fixed(torch.nn.Module):
    """A model with given logits, and what it returns beside them."""

    def __init__(self, logits, extra):
        super().__init__()
        self.logits, self.extra = logits, extra
        object.__setattr__(self, "decoder", argparse.Namespace(adaptive_softmax=None))

    def forward(self, src_tokens):
        return self.logits, self.extra

    def get_normalized_probs(self, net_output, log_probs, sample=None):
        return F.log_softmax(net_output[0], -1)

    def get_targets(self, sample, net_output):
        return sample["target"]


@pytest.fixture
def criterion():
    return LanguageModelLoss(argparse.Namespace(target_dictionary=byte_dictionary(), byte_data=True))


@pytest.mark.parametrize("extra", [{}, None])  # (None: fairseq's LSTM)
def test_sums(criterion, extra):
    target = torch.tensor([[10, 11, 2], [12, 1, 1]])  # three bytes, </s>, and padding
    logits = torch.randn(2, 3, 260)
    logits[0, 0, 10] = 50  # one right
    sample = {"target": target, "ntokens": 4, "net_input": {"src_tokens": target}}
    loss, size, logged = criterion(Fixed(logits, extra), sample)
    by_hand = -sum(logits[b, t].log_softmax(0)[target[b, t]].item() for b, t in ((0, 0), (0, 1), (0, 2), (1, 0)))
    assert loss.item() == pytest.approx(by_hand, rel=1e-6) and size == 4 and logged["nsentences"] == 2
    assert logged["correct"] == 1 and logged["bytes"] == 3 and logged["loss"].dtype == torch.double
    with metrics.aggregate(new_root=True) as agg:
        LanguageModelLoss.reduce_metrics([logged, logged])
        values = agg.get_smoothed_values()
    bits = by_hand / math.log(2)
    assert values["loss"] == pytest.approx(bits / 4, abs=6e-4) and values["loss"] == round(values["loss"], 3)
    assert values["ppl"] == pytest.approx(2 ** (bits / 4), rel=1e-3)
    assert values["accuracy"] == 25
    assert values["total_bits"].item() == pytest.approx(2 * bits, rel=1e-6)
    assert values["total_tokens"] == 8 and values["total_bytes"] == 6
    assert values["bpb"] == pytest.approx(bits / 3, abs=6e-5) and values["bpb"] == round(values["bpb"], 4)


def test_a_batch_without_targets_has_no_weight():
    nothing = {"loss": torch.tensor(0.0), "ntokens": 0, "nsentences": 1, "sample_size": 0, "correct": 0, "judged": 0}
    something = {**nothing, "loss": torch.tensor(2 * math.log(2)), "ntokens": 1}
    with metrics.aggregate(new_root=True) as agg:
        for output in (nothing, something, nothing):
            LanguageModelLoss.reduce_metrics([output])
            assert "loss" in agg, "or fairseq's trainer logs -1"
        assert agg.get_smoothed_values()["loss"] == 2


def test_logging_waits_for_the_device_once(monkeypatch):
    """Each number that is read from a tensor by itself would be a wait."""
    parts = {"loss": torch.tensor(2.0).double(), "correct": torch.tensor(1), "ntokens": 4, "measure_span": 1.5}
    reads = []
    for name in ("item", "__float__", "__int__", "__bool__", "tolist"):
        read = getattr(torch.Tensor, name)
        monkeypatch.setattr(torch.Tensor, name, lambda self, read=read, n=name: reads.append(n) or read(self))
    assert summed([parts, parts, {"late": torch.tensor([3, 4]).sum()}]) == {
        "loss": 4.0,
        "correct": 2.0,
        "ntokens": 8,
        "measure_span": 3.0,
        "late": 7.0,
    }
    assert reads == ["tolist"] and summed([]) == {}
