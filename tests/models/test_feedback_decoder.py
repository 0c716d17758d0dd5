"""The feedback decoder: what it computes, decoding, padding, reordering, size of its state."""

import pytest
import torch
import torch.nn.functional as F

from fb_fairseq.errors import UserError
from tests.models.decoders import PAD, batch, build, initialised
from tests.modules.test_dropout import LAYERS, check_rate

OPTIONS = [
    dict(),
    dict(decoder_normalize_before=True, encoder_normalize_before=True, memory_projections="per-layer"),
    dict(decoder_normalize_before=True, memory_composition="same-and-lower", decoder_learned_pos=True),
    dict(memory_composition="previous", memory_projections="per-layer", encoder_embed_dim=9, activation_fn="tanh"),
    dict(memory_composition="layer:1", layernorm_embedding=True, no_cross_attention=True),
    dict(decoder_normalize_before=True, no_decoder_final_norm=True, decoder_output_dim=8),
]


def forward(model, source, target):
    """The logits of a batch of sentences."""
    return model(source, source.ne(PAD).sum(1), target)[0]


def encode(model, source):
    """The encoder's output of a batch of sentences."""
    return model.encoder(source, source.ne(PAD).sum(1))


def attend(attention, query, memory, projection=None):
    """fairseq's MultiheadAttention of one query [B, D] over memories [C, B, D].

    Args:
        projection: what keys and values come from in place of the attention's own.
    """
    if projection is None:
        return attention(query[None], memory, memory, need_weights=False)[0][0]
    k, v = projection.k_proj, projection.v_proj
    H, (_, B, D) = attention.num_heads, memory.shape
    q, k, v = (x.view(-1, B * H, D // H).transpose(0, 1) for x in (attention.q_proj(query), k(memory), v(memory)))
    done = F.scaled_dot_product_attention(q, k, v).transpose(0, 1).reshape(B, D)
    return attention.out_proj(done)


def by_hand(model, source, target):
    """Logits, with fairseq's own attention modules, one step after the other."""
    decoder = model.decoder
    out = encode(model, source)
    encoder = out["encoder_out"][0]
    padding = out["encoder_padding_mask"][0]
    layers, before = list(decoder.layers), decoder.options.decoder_normalize_before
    memories, outputs = [], []
    x_BTD = decoder._embed(target, 0)
    mix = decoder.memory.mix()
    for x in x_BTD.unbind(1):
        states = [x]
        for l, layer in enumerate(layers):
            residual, normed = x, layer.self_attn_layer_norm(x) if before else x
            if memories:
                memory = torch.stack([m[l if len(m) > 1 else 0] for m in memories])
                if decoder.memory.shared:
                    norm = decoder.memory.layer_norm
                    attended = attend(layer.self_attn, normed, norm(memory) if before else memory, decoder.memory)
                else:
                    attended = attend(layer.self_attn, normed, layer.self_attn_layer_norm(memory) if before else memory)
            else:
                attended = layer.self_attn.out_proj(torch.zeros_like(x))
            x = residual + attended
            x = x if before else layer.self_attn_layer_norm(x)
            if layer.encoder_attn is not None:
                normed = layer.encoder_attn_layer_norm(x) if before else x
                x = x + layer.encoder_attn(normed[None], encoder, encoder, key_padding_mask=padding)[0][0]
                x = x if before else layer.encoder_attn_layer_norm(x)
            normed = layer.final_layer_norm(x) if before else x
            x = x + layer.fc2(decoder.layers[0].activation_fn(layer.fc1(normed)))
            x = x if before else layer.final_layer_norm(x)
            states.append(x)
        memories.append([sum(share * state for share, state in zip(row, states)) for row in mix])
        outputs.append(x)
    y = torch.stack(outputs, 1)
    y = decoder.layer_norm(y) if decoder.layer_norm is not None else y
    return decoder.output_layer(decoder.project_out_dim(y) if decoder.project_out_dim is not None else y)


@pytest.mark.parametrize("changes", OPTIONS)
def test_equal_to_fairseqs_modules_step_by_step(changes):
    model = build(**changes).double()
    source = batch([5, 7, 2])
    target = batch([6, 4, 5])
    results = []
    for compute in (forward, by_hand):
        model.zero_grad()
        logits = compute(model, source, target)
        (logits.log_softmax(-1)[target.ne(PAD)] * torch.linspace(-1, 1, logits.shape[-1])).sum().backward()
        results.append((logits.detach(), {n: p.grad for n, p in model.named_parameters() if p.grad is not None}))
    (logits, grads), (expected, expected_grads) = results
    torch.testing.assert_close(logits, expected)
    for name in expected_grads:
        torch.testing.assert_close(grads[name], expected_grads[name], atol=1e-8, rtol=1e-6, msg=name)
    assert all(name in expected_grads or not grad.any() for name, grad in grads.items())


@pytest.mark.parametrize("changes", OPTIONS)
def test_decoding_equals_teacher_forcing(changes):
    """One token after the other, or several at once, with reorderings that repeat and drop hypotheses."""
    model = build(**changes)
    source = batch([5, 7, 2])
    target = batch([9, 9, 9])
    encoder_out = encode(model, source)
    full, _ = model.decoder(target, encoder_out=encoder_out)
    last = model.decoder.options.decoder_layers - 1
    _, extra = model.decoder(target, encoder_out=encoder_out, alignment_layer=last)
    state = {}
    steps = [model.decoder(target[:, :3], encoder_out=encoder_out, incremental_state=state)[0]]
    for t in range(4, 7):
        step, aligned = model.decoder(target[:, :t], encoder_out=encoder_out, incremental_state=state)
        steps.append(step)
        if extra["attn"][0] is not None:
            torch.testing.assert_close(aligned["attn"][0][:, 0], extra["attn"][0][:, t - 1])
    torch.testing.assert_close(torch.cat(steps, 1), full[:, :6], atol=1e-5, rtol=1e-5)
    order = torch.tensor([2, 2, 0, 1])  # sentences too: as if some were finished
    model.decoder.reorder_incremental_state_scripting(state, order)
    reordered = model.encoder.reorder_encoder_out(encoder_out, order)
    step, _ = model.decoder(target[order][:, :7], encoder_out=reordered, incremental_state=state)
    torch.testing.assert_close(step[:, 0], full[order, 6], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("changes", OPTIONS[:4])
def test_hypotheses_share_their_sentence(changes):
    """As beam search has them: n rows a sentence, which move within it; then a sentence is finished."""
    model, n = build(**changes), 4
    source = batch([5, 7, 7, 2])
    target = batch([9] * 16)
    source[2] = source[1]  # the same text twice
    encoder_out = encode(model, source)
    encoder_out = model.encoder.reorder_encoder_out(encoder_out, torch.arange(4).repeat_interleave(n))
    state = {}

    def check(t, sentences):
        step, aligned = model.decoder(target[:, :t], encoder_out=encoder_out, incremental_state=state)
        full, _ = model.decoder(target[:, :t], encoder_out=encoder_out)
        last = model.decoder.options.decoder_layers - 1
        _, expected = model.decoder(target[:, :t], encoder_out=encoder_out, alignment_layer=last)
        torch.testing.assert_close(step[:, -1], full[:, -1], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(aligned["attn"][0][:, -1], expected["attn"][0][:, -1])
        kept = model.decoder.get_incremental_state(state, "feedback").encoder
        assert kept[0].keys_CBHE.shape[1] == sentences

    def reorder(order):
        nonlocal target, encoder_out
        model.decoder.reorder_incremental_state_scripting(state, order)
        target = target[order]
        encoder_out = model.encoder.reorder_encoder_out(encoder_out, order)

    check(1, 4)
    check(2, 4)
    reorder(torch.tensor([1, 1, 0, 3, 4, 5, 6, 7, 11, 10, 9, 8, 12, 12, 12, 12]))
    check(3, 4)
    reorder(torch.tensor([4, 5, 6, 7, 8, 9, 10, 11]))
    check(4, 2)
    reorder(torch.tensor([0, 5, 1, 4, 2, 6, 3, 7]))  # not beam search
    check(5, 8)
    reorder(torch.tensor([5]))
    check(6, 1)


@pytest.mark.parametrize("projections,share", [("shared", 0.5), ("per-layer", 1 / 6)])
def test_vector_storage(projections, share):
    """v1 §5.3: the same predictions, from half of the bytes, or from 1 / 2L with projections per layer. The state grows
    with the sentence, and no sooner."""
    found = {}
    source = batch([5, 7, 2])
    target = batch([70, 70, 70])
    for storage in ("keys-values", "vectors"):
        torch.manual_seed(0)
        model = build(memory_storage=storage, memory_projections=projections)
        state = {}
        steps = []
        encoder_out = encode(model, source)
        with torch.no_grad():
            full = model.decoder(target, encoder_out=encoder_out)[0]
            for t in range(1, 71):
                steps.append(model.decoder(target[:, :t], encoder_out=encoder_out, incremental_state=state)[0])
                ring = model.decoder.get_incremental_state(state, "feedback").ring
                if t == 1:
                    first = ring.nbytes()
                if t == 30:
                    model.decoder.reorder_incremental_state(state, torch.tensor([0, 1, 2]))
        torch.testing.assert_close(torch.cat(steps, 1), full, atol=1e-5, rtol=1e-5)
        found[storage] = ring.nbytes()
        assert found[storage] == 2 * first, "128 slots, and 64"
    assert found["vectors"] == share * found["keys-values"]


def test_layerdrop():
    """Drawn anew for each block."""
    model = build(decoder_layerdrop=0.4).train()
    source = batch([5, 7, 2])
    target = batch([6, 4, 5])
    found = {forward(model, source, target).sum().item() for _ in range(9)}
    assert 1 < len(found) <= 2**3
    forward(model, source, target).sum().backward()


@pytest.mark.parametrize("name", ["dropout", "attention_dropout", "activation_dropout"])
def test_each_rate_of_dropout(name):
    """Of the decoder: of embeddings, of attention to the memory and to the encoder, of feed-forward sublayers."""
    source = batch([5, 7, 2])
    target = batch([6, 4, 5])

    def decoded(model):
        model.encoder.eval()
        return model.decoder(target, encoder_out=encode(model, source))[0]

    left_out = rf"^decoder\.layers.*({LAYERS[name]})"
    if name == "dropout":
        left_out += r"|^decoder\.embed_tokens"
    check_rate(lambda **rates: build(no_token_positional_embeddings=True, **rates), name, left_out, decoded)


def test_initial_projections_of_a_shared_memory():
    """As fairseq's attention initialises its own (Xavier with a gain of 1/√2)."""
    memory = initialised().decoder.memory
    for projection in (memory.k_proj, memory.v_proj):
        assert 0.9 < projection.weight.abs().max() / (6 / (2 * 24)) ** 0.5 <= 1


def test_targets_padded_on_the_left_are_refused():
    with pytest.raises(UserError, match="--left-pad-target"):
        forward(build(), batch([3]), torch.tensor([[PAD, 2, 5]]))


def test_decoding_waits_for_no_gpu():
    """No number of a tensor is read after the first step. (fairseq's sinusoidal positions read some.)"""
    model, state = build(no_token_positional_embeddings=True, no_cross_attention=True).eval(), {}
    for t in (1, 2):
        with torch.no_grad(), torch.profiler.profile() as profile:
            model.decoder(batch([4])[:, :t], encoder_out=None, incremental_state=state)
    assert "aten::item" not in {event.name for event in profile.events()}


@pytest.mark.parametrize("loop", ["reference", "cpp"])
@torch.no_grad()
def test_no_encoder(loop):
    """Where none is given, the decoder computes as with an attention to the encoder that adds nothing."""
    model, target = build(step_loop=loop, decoder_normalize_before=True), batch([4, 4])
    found, state = model.decoder(target, encoder_out=None)[0], {}
    decoded = [model.decoder(target[:, :t], incremental_state=state) for t in range(1, 5)]
    steps = [logits for logits, _ in decoded]
    assert all(extra["attn"] == [None] for _, extra in decoded)
    for layer in model.decoder.layers:
        layer.encoder_attn.out_proj.weight.zero_()
        layer.encoder_attn.out_proj.bias.zero_()
    expected = forward(model, batch([3, 2]), target)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.cat(steps, 1), expected)


@pytest.mark.parametrize("side", ["source", "target"])
def test_dictionaries_of_another_size(side):
    state = build().state_dict()
    part = {"source": "encoder", "target": "decoder"}[side]
    state[f"{part}.embed_tokens.weight"] = torch.zeros(7, 12)
    with pytest.raises(UserError, match=f"dict.<{side} language>.txt: .* 7 symbols, the data's has 1[58]"):
        build().load_state_dict(state)


@pytest.mark.parametrize("changes", OPTIONS[:4])
def test_every_parameter_has_a_gradient(changes):
    """With targets of one token too, whose attention sees nothing: DistributedDataParallel needs it."""
    model = build(**changes).train()
    forward(model, batch([3, 2]), batch([1, 1])).sum().backward()
    without = [name for name, parameter in model.decoder.named_parameters() if parameter.grad is None]
    assert not without
