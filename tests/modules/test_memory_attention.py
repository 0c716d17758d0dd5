"""``memory_attention``: the weights by distance give back what the layers compute, and what the heads reach."""

import pytest
import torch

from fb_fairseq.errors import UserError
from fb_fairseq.modules import AllAttention, FeedbackTransformer, RelativeTransformer
from fb_fairseq.modules.layer import attention_projection
from fb_fairseq.modules.options import PERSISTENT_MEMORY_VARIANTS
from fb_fairseq.ops import all_attention_reference as reference
from fb_fairseq.ops.layers import attention_residual, feed_forward, layer_norm, project_memory, project_query
from tests.modules.options import random_stack

STACKS = [FeedbackTransformer, RelativeTransformer]
B, CARRIED, T = 3, 5, 9


def build(stack, seed, **fixed):
    return random_stack(stack, seed, **fixed).double().eval()


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


@torch.no_grad()
def weights_slot_by_slot(model, l, past, x_D):
    """Layer l's weights at a step by the slot-by-slot reference: of the context by head [H, S], nearest first, and of
    the persistent vectors by group [U, N]. ``past``: its inputs at the steps before; ``x_D``: what it projects queries
    from."""
    o, layer = model.options, model.layers[l]
    reach = model.reaches()[l]
    projection = attention_projection(layer)
    weights = model.layer_weights(layer, reach)
    past = [layer_norm(step_D, projection.norm) for step_D in past][-reach:]
    q_HE = project_query(x_D, weights, o.decoder_attention_heads, o.decoder_normalize_before)
    plain = reference.AllAttentionReference(
        weights, projection, model.positions.weights(), o.decoder_attention_heads, True
    )
    context, persistent = [], []
    for h in range(o.context_heads):
        slots = plain.context_slots(past, h, slice(h * o.head_dim, (h + 1) * o.head_dim))
        own = reference.vectors(weights, h) if weights.variant == "all-attn" else []
        shares = softmax(q_HE[h], slots + own)
        context.append(shares[: len(slots)][::-1] + [torch.zeros(())] * (o.attention_span - len(slots)))
        persistent.append(shares[len(slots) :])
    if weights.variant != "all-attn":
        # What each group of vectors is asked with; of ff-attn it is what the first sublayer returns.
        queries = {"attn-split": q_HE, "head-split": q_HE[o.context_heads :], "single-head": q_HE.flatten()[None]}
        groups = enumerate(queries.get(weights.variant, []))
        persistent = [softmax(q_E, reference.vectors(weights, u)) for u, q_E in groups]
    return torch.tensor(context), torch.tensor(persistent)


def softmax(q_E, slots):
    """The share of each slot in what a query reads."""
    parts = [slot.mask * torch.exp(q_E @ slot.key_E / len(q_E) ** 0.5) for slot in slots]
    return [part / sum(parts) for part in parts]


@pytest.mark.parametrize("variant", PERSISTENT_MEMORY_VARIANTS)
@pytest.mark.parametrize("seed", range(4))
def test_all_attention(variant, seed):
    """Against the slot-by-slot reference; and watching a block changes neither its outputs nor the state after it."""
    fixed = dict(decoder_attention_heads=2, persistent_memory_size=5, persistent_memory_variant=variant)
    model = build(AllAttention, seed, **fixed)
    model.clamp()  # a span below 0 would attend to nothing
    x_TBD = torch.randn(CARRIED + T, B, model.options.decoder_embed_dim, dtype=torch.double)
    with torch.no_grad():
        _, state = model(x_TBD[:CARRIED])
        _, expected_state = model(x_TBD[CARRIED:], state)
        weights_LBHTS, after = model.memory_attention(x_TBD[CARRIED:], state)
        use_LUN, _ = model.persistent_use(x_TBD[CARRIED:], state)
        torch.testing.assert_close(after.memory_KCBD, expected_state.memory_KCBD)
        inputs_LTBD = torch.stack(layer_inputs(model, x_TBD))
    assert use_LUN.shape[::2] == (model.options.decoder_layers, 5)
    sums = weights_LBHTS.sum(-1)
    if variant == "all-attn":
        torch.testing.assert_close(sums.mean((1, 3)) + use_LUN.sum(-1), torch.ones_like(sums.mean((1, 3))))
        torch.testing.assert_close(model.persistent_shares(x_TBD[CARRIED:], state)[0], use_LUN.sum(-1))
    else:
        torch.testing.assert_close(sums, torch.ones_like(sums))
        torch.testing.assert_close(use_LUN.sum(-1), torch.ones_like(use_LUN.sum(-1)))
    for l in range(model.options.decoder_layers):
        found = []
        for t in range(CARRIED, CARRIED + T):
            for b in range(B):
                past = list(inputs_LTBD[l, :t, b])
                context_HS, persistent_UN = weights_slot_by_slot(model, l, past, inputs_LTBD[l, t, b])
                torch.testing.assert_close(weights_LBHTS[l, b, :, t - CARRIED], context_HS.double())
                found.append(persistent_UN)
        if variant != "ff-attn":  # whose queries are what the first sublayer returns
            torch.testing.assert_close(use_LUN[l], torch.stack(found).mean(0))


def layer_inputs(model, x_TBD):
    """The inputs [T, B, D] of all layers, from streams without a past."""
    inputs = []
    for layer, reach in zip(model.layers, model.reaches()):
        inputs.append(x_TBD)
        x_TBD = model.run_layer(layer, x_TBD, x_TBD[:0], reach, None)
    return inputs


def test_softmax_feed_forward_use():
    """``ff-attn``: queries of the second sublayer, the same for every step where its input is."""
    fixed = dict(persistent_memory_size=5, persistent_memory_variant="ff-attn", decoder_layers=1)
    model = build(AllAttention, 1, decoder_normalize_before=True, **fixed)
    layer = model.layers[0]
    x_TBD = torch.randn(1, B, model.options.decoder_embed_dim, dtype=torch.double)
    # The first step of a stream has no context: the first sublayer adds nothing.
    scores = layer.final_layer_norm(x_TBD[0]) @ layer.persistent_memory.key[0].t()
    torch.testing.assert_close(model.persistent_use(x_TBD)[0][0, 0], scores.softmax(-1).mean(0).detach())


def test_without_persistent_vectors():
    model = build(AllAttention, 0, persistent_memory_size=0, adaptive_span=False)
    weights_LBHTS, _ = model.memory_attention(torch.randn(T, B, model.options.decoder_embed_dim).double())
    torch.testing.assert_close(weights_LBHTS[..., 1:, :].sum(-1), torch.ones_like(weights_LBHTS[..., 1:, 0]))
    split = build(AllAttention, 0, persistent_memory_size=5, persistent_memory_variant="attn-split")
    with pytest.raises(ValueError, match="--persistent-memory-variant attn-split"):
        split.persistent_shares(torch.randn(T, B, split.options.decoder_embed_dim).double())
    with pytest.raises(UserError, match="--persistent-memory-size 0: the model has no persistent vectors"):
        model.persistent_use(torch.randn(T, B, model.options.decoder_embed_dim).double())
