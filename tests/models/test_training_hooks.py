"""What fairseq's trainer calls around each update: threads before the first one, spans clamped after each."""

import argparse

import pytest
import torch

from fb_fairseq.ops import threads as step_loop_threads
from tests.models.language_models import MODELS, FeedbackLM, RelativeLM, build, tokens


@pytest.mark.parametrize("model,threads", [(FeedbackLM, 1), (RelativeLM, 3)])
def test_threads_are_chosen_before_training(model, threads, torch_threads, monkeypatch, caplog):
    """Once, and for a model that runs step by step only; running it changes nothing."""
    monkeypatch.setattr(step_loop_threads, "_kept", 1)
    caplog.set_level("INFO")
    torch.set_num_threads(3)
    model = build(model)
    batch = tokens(2, 4)
    for training in (True, False):
        model.train(training)(batch)
    assert torch.get_num_threads() == 3 and not caplog.messages
    for _ in range(2):
        model.before_train_step({"net_input": {"src_tokens": batch}})
        assert torch.get_num_threads() == threads
        torch.set_num_threads(threads)
    assert len(caplog.messages) == (threads == 1)
    torch.set_num_threads(3)
    model.before_train_step({"net_input": {"src_tokens": batch}})
    assert torch.get_num_threads() == 3, "only before the first step"


@pytest.mark.parametrize("model", MODELS)
def test_spans_are_clamped_after_an_update(model):
    """And so are the fp32 copies, from which the next update starts."""
    model = build(model, adaptive_span=True)
    parameters = list(model.parameters())
    with torch.no_grad():
        for parameter in parameters:
            parameter.fill_(1.5)
    copies = [torch.nn.Parameter(parameter.detach().clone()) for parameter in parameters]
    model.after_optimizer_step(argparse.Namespace(fp16_params=parameters, fp32_params=copies))
    for (name, parameter), copy in zip(model.named_parameters(), copies):
        bound = 1.0 if name.endswith("adaptive_span.z") else 1.5
        assert parameter.eq(bound).all() and copy.eq(bound).all(), name
    assert any(name.endswith("adaptive_span.z") for name, _ in model.named_parameters())
    model.after_optimizer_step(argparse.Namespace())  # an optimizer without copies
