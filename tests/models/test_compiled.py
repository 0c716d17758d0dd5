"""Models under ``torch.compile``: what is around the step loop is compiled, the loop itself left alone."""

import pytest
import torch

from fb_fairseq.models.language_models import FeedbackTransformerLanguageModel
from tests.models.decoders import PAD, batch
from tests.models.decoders import build as build_decoder
from tests.models.language_models import build as build_lm
from tests.models.language_models import tokens


def language_model():
    """A model with dropout, and the arguments of a call."""
    return build_lm(FeedbackTransformerLanguageModel, dropout=0.2), (tokens(3, 7),)


def decoder():
    """A translation model with dropout, and the arguments of a call."""
    source = batch([5, 7, 2])
    return build_decoder(attention_dropout=0.2, step_loop="reference"), (
        source,
        source.ne(PAD).sum(1),
        batch([6, 4, 5]),
    )


def outcome(model, forward, inputs):
    """Logits and gradients."""
    torch.manual_seed(3)
    model.zero_grad()
    logits = forward(*inputs)[0]
    logits.logsumexp(-1).sum().backward()
    return logits.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.not_fast
@pytest.mark.parametrize("make", [language_model, decoder])
def test_compiled_equals_eager(make):
    """(``aot_eager`` traces the backward pass, too, but generates no code.)"""
    model, inputs = make()
    model.train()
    expected, expected_grads = outcome(model, model, inputs)
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(model, backend="aot_eager")
    for _ in range(2):
        logits, grads = outcome(model, compiled, inputs)
        torch.testing.assert_close(logits, expected)
        assert grads.keys() == expected_grads.keys()
        for name in grads:
            torch.testing.assert_close(grads[name], expected_grads[name], msg=name)
    assert 0 < torch._dynamo.utils.counters["stats"]["unique_graphs"] < 10, "the loop is not compiled in pieces"
    again, again_grads = outcome(model, model, inputs)  # and the model itself is as it was
    assert again.equal(expected) and all(again_grads[name].equal(grad) for name, grad in expected_grads.items())
