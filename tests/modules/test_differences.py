"""What docs/differences.md says of equations: where the models differ from the papers' letter."""

import math

import pytest
import torch

from fb_fairseq.modules.all_attention import AllAttention
from fb_fairseq.modules.feedback_transformer import FeedbackTransformer
from fb_fairseq.modules.options import TransformerOptions
from fb_fairseq.modules.relative_transformer import RelativeTransformer

L = 3
D = 64
PRE_NORM = {"decoder_normalize_before": True}


def build(kind, **more):
    """A stack of a class with ``L`` layers of width ``D``, the same each time."""
    torch.manual_seed(1)
    sizes = dict(decoder_layers=L, decoder_embed_dim=D, decoder_ffn_embed_dim=D, decoder_attention_heads=4)
    return kind(TransformerOptions(**sizes, attention_span=8, **more))


@pytest.mark.parametrize(
    "options,more",
    [
        ({}, 0),
        (PRE_NORM, 2),
        ({**PRE_NORM, "memory_projections": "per-layer"}, 1),
        ({**PRE_NORM, "no_decoder_final_norm": True}, 1),
    ],
)
def test_norms(options, more):
    """Two of each layer; with pre-norm one at the end, unless told not to, and the memory's if it has projections."""
    modules = build(FeedbackTransformer, **options).modules()
    assert sum(isinstance(module, torch.nn.LayerNorm) for module in modules) == 2 * L + more


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
