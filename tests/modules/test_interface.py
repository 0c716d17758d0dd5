"""All stacks offer the declared interface, and each option is described once."""

from dataclasses import fields

import pytest
import torch

from fb_fairseq.errors import UserError
from fb_fairseq.modules import AllAttention, FeedbackTransformer, RelativeTransformer, StreamState, TransformerOptions
from fb_fairseq.modules.affine import norm
from fb_fairseq.modules.interface import Report, Stack, StepMemory
from fb_fairseq.modules.lstm import LSTM, LSTMOptions

B, T, D = 2, 3, 8


def build(stack):
    if stack is LSTM:
        return LSTM(LSTMOptions(decoder_layers=2, decoder_embed_dim=D))
    options = dict(decoder_layers=2, decoder_embed_dim=D, decoder_ffn_embed_dim=5, decoder_attention_heads=2)
    return stack(TransformerOptions(attention_span=4, adaptive_span=True, **options))


@pytest.mark.parametrize("stack", [FeedbackTransformer, RelativeTransformer, AllAttention, LSTM])
def test_stacks_offer_the_interface(stack):
    model, x_TBD = build(stack), torch.randn(T, B, D)
    assert isinstance(model, Stack)
    y_TBD, state = model.run_block(x_TBD)
    assert y_TBD.shape == x_TBD.shape and isinstance(state, StreamState)
    report = model.report()
    assert isinstance(report, Report) and all(value.dim() == 0 for value in report.logged.values())
    model.clamp()
    model.eval()
    for memory in (model.new_ring(), model.ring_after(state)):
        assert isinstance(memory, StepMemory)
        before = memory.position
        with torch.no_grad():
            assert model.run_step(x_TBD[0], memory).shape == (B, D)
        assert memory.position == before + 1 and memory.nbytes() > 0
        memory.reorder(torch.tensor([1, 1, 0]))
        with torch.no_grad():
            assert model.run_step(x_TBD[0][[1, 1, 0]], memory).shape == (3, D)


@pytest.mark.parametrize("options", [TransformerOptions, LSTMOptions])
def test_options_are_described(options):
    assert all(f.metadata.get("help") for f in fields(options))


def test_another_epsilon_is_refused():
    """All arithmetic assumes torch's default, which fairseq's layers have too."""
    with pytest.raises(UserError, match="epsilon 1e-06"):
        norm(torch.nn.LayerNorm(3, eps=1e-6))
