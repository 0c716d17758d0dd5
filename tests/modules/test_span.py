"""Adaptive spans: the formula, and that leaving out what lies beyond a span changes nothing."""

import pytest
import torch

from fb_fairseq.modules import AllAttention, FeedbackTransformer, RelativeTransformer, TransformerOptions
from fb_fairseq.ops.attention import Positions, step_attention
from fb_fairseq.ops.span_masks import span_mask, span_softmax
from tests.modules.options import randomise
from tests.ops.feedback.cases import compare

S, R = 100, 10
SIZES = dict(decoder_layers=2, decoder_embed_dim=12, decoder_ffn_embed_dim=20, decoder_attention_heads=3)
SPANS = dict(attention_span=S, adaptive_span=True, adaptive_span_ramp=R, adaptive_span_loss=0.01)
OPTIONS = TransformerOptions(**SIZES, **SPANS, persistent_memory_size=5)


def test_mask_is_the_formula():
    z = torch.tensor([0.0, 0.3, 1.0], dtype=torch.double)
    mask = span_mask(z, S, R)
    for h in range(3):
        for d in range(1, S + 1):
            assert mask[h, d - 1].item() == pytest.approx(min(max((R + z[h].item() * S - (d - 1)) / R, 0), 1))


def test_weights_are_the_formula():
    scores = torch.randn(4, 7, dtype=torch.double) * 9
    mask = torch.rand(7, dtype=torch.double)
    mask[2:4] = 0
    expected = mask * scores.exp() / (mask * scores.exp()).sum(-1, keepdim=True)
    weights, log_sum = span_softmax(scores, mask)
    torch.testing.assert_close(weights, expected)
    torch.testing.assert_close(log_sum, (mask * scores.exp()).sum(-1, keepdim=True).log())
    weights, log_sum = span_softmax(scores, torch.zeros(7))
    assert weights.eq(0).all() and log_sum.isfinite().all() and log_sum.lt(-1e300).all()
    scores = torch.tensor([1e4, 0.0, 1.0])  # the largest score lies outside the span
    weights, _ = span_softmax(scores, torch.tensor([0.0, 1.0, 1.0]))
    torch.testing.assert_close(weights, torch.tensor([0.0, 0.26894143, 0.73105854]))


def test_gradient_of_the_span():
    q, k, v = (torch.randn(shape, dtype=torch.double) for shape in ((2, 3, 4), (9, 2, 3, 4), (9, 2, 3, 4)))
    z = torch.tensor([0.31, 0.52, 0.77], dtype=torch.double, requires_grad=True)

    def attend(z):
        return step_attention(q, k, v, Positions(), span_mask_HC=span_mask(z, 9, 3).flip(1))

    assert torch.autograd.gradcheck(attend, z)


@pytest.mark.parametrize("model", [FeedbackTransformer, RelativeTransformer, AllAttention])
def test_trimmed_equals_untrimmed(model, monkeypatch):
    """Outputs and gradients are the same, and memory beyond the longest span is not kept."""
    model = model(OPTIONS).double().eval()
    randomise(model)
    for layer, z in zip(model.layers, ([0.05, 0.0, 0.11], [0.02, 0.03, 0.2])):
        layer.self_attn.adaptive_span.z.data = torch.tensor(z, dtype=torch.double)
    assert model.reaches() == [21, 30]
    x = torch.randn(90, 2, 12, dtype=torch.double)

    def run():
        model.zero_grad()
        outputs, state = [], None
        for block in x.split(40):
            y, state = model(block, state)
            outputs.append(y)
        y = torch.cat(outputs)
        y.pow(2).sum().backward()
        found = {"output": y.detach(), **{name: p.grad.clone() for name, p in model.named_parameters()}}
        return found, state.memory_KCBD.shape[1]

    trimmed, slots = run()
    assert slots == 30
    monkeypatch.setattr(model, "reaches", lambda: [S] * len(model.layers))
    untrimmed, slots = run()
    assert slots == 90
    compare(trimmed, untrimmed, 1e-9)


def test_training_keeps_a_margin():
    model = FeedbackTransformer(OPTIONS)
    assert model.reaches() == [R, R]
    _, state = model(torch.randn(95, 2, 12))
    assert state.memory_KCBD.shape[1] == R + 64


def test_penalty_and_clamping():
    model = FeedbackTransformer(OPTIONS)
    model.layers[0].self_attn.adaptive_span.z.data = torch.tensor([0.1, 0.2, 0.6])
    model.layers[1].self_attn.adaptive_span.z.data = torch.tensor([-0.1, 1.7, 0.5])
    assert model.report().penalty.item() == pytest.approx(0.01 * S * (0.3 + 0.7))
    model.clamp()
    assert model.layers[1].self_attn.adaptive_span.z.tolist() == [0, 1, 0.5]
