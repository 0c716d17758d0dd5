"""``memory_attention``: the weights by distance give back what the layers compute, and what the heads reach."""

import pytest
import torch

from fb_fairseq.errors import UserError
from fb_fairseq.modules import AllAttention, FeedbackTransformer, RelativeTransformer
from fb_fairseq.ops.layers import attention_residual, feed_forward, project_memory
from tests.modules.options import random_options, randomise

STACKS = [FeedbackTransformer, RelativeTransformer]
B, CARRIED, T = 3, 5, 9


def build(stack, seed, **fixed):
    model = stack(random_options(seed, **fixed)).double().eval()
    randomise(model)
    return model


def attended_by_hand(weights_BHTS, memory_CBD, projection, positions, heads):
    """The attention's result [T, B, H, E]: values of earlier steps, each with its weight, added one by one."""
    _, values_CBHE = project_memory(memory_CBD, projection, heads)
    out_TBHE = torch.zeros(T, *values_CBHE.shape[1:], dtype=torch.double)
    for t in range(T):
        for d in range(1, weights_BHTS.shape[-1] + 1):
            slot = len(memory_CBD) - T + t - d
            if slot >= 0:
                value = values_CBHE[slot]
                if positions.value_SE is not None:
                    value = value + positions.value_SE[d - 1]
                out_TBHE[t] += weights_BHTS[:, :, t, d - 1, None] * value
            else:
                assert weights_BHTS[:, :, t, d - 1].eq(0).all()
    return out_TBHE


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("carried", [0, CARRIED])
def test_weights_rebuild_the_layers(stack, seed, carried):
    """From the weights and the memory, and the embeddings, follow the outputs of all layers."""
    model = build(stack, seed)
    o, D = model.options, model.options.decoder_embed_dim
    with torch.no_grad():
        _, state = model(torch.randn(CARRIED, B, D, dtype=torch.double))
        state = state if carried else None
        x_TBD = torch.randn(T, B, D, dtype=torch.double)
        expected, expected_state = model(x_TBD, state)
        weights_LBHTS, after = model.memory_attention(x_TBD, state)
        torch.testing.assert_close(after.memory_KCBD, expected_state.memory_KCBD)
        own = model.loop_weights(x_TBD.device, model.reaches())
        memory_KCBD = all_memories(model, x_TBD, state)
        for l, layer in enumerate(own.layers):
            memory_CBD = memory_KCBD[l if len(memory_KCBD) > 1 else 0]
            projection = own.projections[l if len(own.projections) > 1 else 0]
            heads, before = o.decoder_attention_heads, o.decoder_normalize_before
            attended = attended_by_hand(weights_LBHTS[l], memory_CBD, projection, own.positions, heads)
            x_TBD = attention_residual(x_TBD, attended, layer, before)
            x_TBD = feed_forward(x_TBD, layer, o.activation_fn, before)
        torch.testing.assert_close(model.finish(x_TBD), expected)


def all_memories(model, x_TBD, state):
    """The memories [K, C + T, B, D] carried into a block and left by it, one step after the other."""
    memories = [] if state is None else [state.memory_KCBD]
    for x_BD in x_TBD:
        _, state = model(x_BD[None], state)
        memories.append(state.memory_KCBD[:, -1:])
    return torch.cat(memories, 1)


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("adaptive", [False, True])
def test_sums_and_reach(stack, adaptive):
    model = build(stack, 2, attention_span=6, adaptive_span=adaptive, adaptive_span_ramp=2, decoder_attention_heads=2)
    if adaptive:
        for layer in model.layers:
            layer.self_attn.adaptive_span.z.data = torch.tensor([0.0, 0.4]).double()  # 2 steps back, and 4.4
    weights_LBHTS, state = model.memory_attention(torch.randn(T, B, model.options.decoder_embed_dim).double())
    assert not weights_LBHTS.requires_grad and not state.memory_KCBD.requires_grad
    assert weights_LBHTS.shape[-2:] == (T, 6)
    sums = weights_LBHTS.sum(-1)
    torch.testing.assert_close(sums[..., 1:], torch.ones_like(sums[..., 1:]))
    assert sums[..., 0].eq(0).all(), "the first step has nothing to attend to"
    reached = [[d for d in range(1, 7) if weights_LBHTS[:, :, h, :, d - 1].gt(0).any()] for h in range(2)]
    assert reached == ([[1, 2], [1, 2, 3, 4, 5]] if adaptive else [[1, 2, 3, 4, 5, 6]] * 2)


@pytest.mark.parametrize("stack", STACKS)
def test_blocks(stack):
    """Block by block, the weights are those of all steps together."""
    model = build(stack, 4, attention_span=6)
    x_TBD = torch.randn(T, B, model.options.decoder_embed_dim).double()
    together, end = model.memory_attention(x_TBD)
    state, parts = None, []
    for block in x_TBD.split([4, 1, 4]):
        weights_LBHTS, state = model.memory_attention(block, state)
        parts.append(weights_LBHTS)
    torch.testing.assert_close(torch.cat(parts, 3), together)
    torch.testing.assert_close(state.memory_KCBD, end.memory_KCBD)


def test_all_attention_is_refused():
    with pytest.raises(UserError, match="persistent_shares"):
        build(AllAttention, 0).memory_attention(torch.randn(T, B, 14).double())
