"""What docs/differences.md says of equations: where the models differ from the papers' letter."""

import math

import pytest
import torch

from fb_fairseq.modules.all_attention import AllAttention
from fb_fairseq.modules.feedback_transformer import FeedbackTransformer
from fb_fairseq.modules.options import TransformerOptions
from fb_fairseq.modules.relative_transformer import RelativeTransformer

L, D = 3, 64


def build(kind, **more):
    """A stack of a class with ``L`` layers of width ``D``, the same each time."""
    torch.manual_seed(1)
    sizes = dict(decoder_layers=L, decoder_embed_dim=D, decoder_ffn_embed_dim=D, decoder_attention_heads=4)
    return kind(TransformerOptions(**sizes, attention_span=8, **more))


def test_norms():
    """With shared projections and pre-norm the memory has its own; pre-norm ends with one, unless told not to."""
    stack = build(FeedbackTransformer, decoder_normalize_before=True)
    norms = [stack.memory.layer_norm, *(layer.self_attn_layer_norm for layer in stack.layers)]
    assert len({id(norm.weight) for norm in norms}) == 1 + L
    assert build(FeedbackTransformer).memory.layer_norm is None
    assert stack.layer_norm is not None and build(FeedbackTransformer).layer_norm is None
    without = build(FeedbackTransformer, decoder_normalize_before=True, no_decoder_final_norm=True)
    assert without.layer_norm is None


@pytest.mark.parametrize("kind", [FeedbackTransformer, RelativeTransformer])
@pytest.mark.parametrize("pre_norm", [True, False])
def test_initial_matrices(kind, pre_norm):
    """U(-1/sqrt(D), 1/sqrt(D)); with pre-norm, those that end a sublayer are divided by sqrt(2 L)."""
    stack = build(kind, decoder_normalize_before=pre_norm)
    for layer in stack.layers:
        for module in (layer.self_attn.q_proj, layer.fc1):
            assert float(module.weight.detach().abs().max()) == pytest.approx(1 / math.sqrt(D), rel=0.05)
        for module in (layer.self_attn.out_proj, layer.fc2):
            scale = math.sqrt(2 * L) if pre_norm else 1
            assert float(module.weight.detach().abs().max()) == pytest.approx(1 / math.sqrt(D) / scale, rel=0.05)


def test_positions():
    """On keys; on values only if asked for."""
    assert build(AllAttention, persistent_memory_size=4).positions.value is None
    both = build(AllAttention, persistent_memory_size=4, relative_positions="key-value")
    assert both.positions.value is not None and both.positions.key is not None
