"""Hidden states, attention, vectors in the place of tokens, and packed texts."""

import pytest
import torch

pytest.importorskip("transformers")
from fb_fairseq.errors import UserError  # noqa: E402
from tests.transformers.models import KINDS, SPAN, V, build  # noqa: E402

IDS = torch.randint(4, V, (2, 12), generator=torch.Generator().manual_seed(3))
STACKS = ["feedback", "feedback-per-layer-spans", "feedback-vectors", "transformer", "all-attention"]
close = dict(atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", STACKS)
@torch.no_grad()
def test_hidden_states(kind):
    """Of a block, of blocks with a memory, and of decoding steps: the same, and nothing else changes."""
    model = build(kind)
    output = model(IDS, output_hidden_states=True)
    torch.testing.assert_close(output.logits, model(IDS).logits, **close)
    states = output.hidden_states
    assert len(states) == 3 and all(x.shape == (2, 12, 16) for x in states)
    torch.testing.assert_close(model.decoder.logits(states[-1]), output.logits, **close)
    assert states[0].equal(model.decoder.embed(IDS))
    cache, parts = None, []
    for part in IDS.split([5, 4, 1, 2], 1):
        again = model(part, past_key_values=cache, output_hidden_states=True, use_cache=True)
        cache = again.past_key_values
        parts.append(again.hidden_states)
    for whole, *pieces in zip(states, *parts):
        torch.testing.assert_close(torch.cat(pieces, 1), whole, **close)
    watched = dict(output_hidden_states=True, return_dict_in_generate=True)
    made = model.generate(IDS, max_new_tokens=3, do_sample=False, **watched)
    assert [len(step) for step in made.hidden_states] == [3, 3, 3] and made.hidden_states[1][0].shape == (2, 1, 16)
    again = model(made.sequences, output_hidden_states=True).hidden_states
    torch.testing.assert_close(made.hidden_states[2][1], again[1][:, 13:14], **close)
    assert model(IDS).hidden_states is None


def test_hidden_states_have_gradients():
    """Of a layer's parameters, through the layer that is looked at."""
    model = build("feedback").train()
    model(IDS, output_hidden_states=True).hidden_states[1].sum().backward()
    assert model.decoder.layers[0].fc1.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("kind", STACKS)
@torch.no_grad()
def test_attention(kind):
    """The weights of the layers' own ``memory_attention``, by token; a token attends to those before it alone."""
    model = build(kind)
    output = model(IDS, output_attentions=True)
    stack = model.decoder.stack
    weights_LBHTS, _ = stack.memory_attention(model.decoder.embed(IDS).transpose(0, 1))
    assert len(output.attentions) == 2
    for weights_BHTK, expected_BHTS in zip(output.attentions, weights_LBHTS):
        for distance in range(1, SPAN + 1):
            found = weights_BHTK.diagonal(-distance, 2, 3)
            torch.testing.assert_close(found, expected_BHTS[:, :, distance:, distance - 1], **close)
    for weights_BHTK in output.attentions:
        assert weights_BHTK.shape == (2, 2, 12, 12) and weights_BHTK.triu(0).abs().max() == 0
        assert (weights_BHTK.tril(-SPAN - 1) == 0).all() and (weights_BHTK[:, :, 1:].sum(-1) <= 1 + 1e-5).all()
    cache = model(IDS[:, :5], use_cache=True).past_key_values
    later = model(IDS[:, 5:], past_key_values=cache, output_attentions=True).attentions
    for whole, part in zip(output.attentions, later):
        assert part.shape == (2, 2, 7, min(5, SPAN) + 7)
        torch.testing.assert_close(part, whole[:, :, 5:, 5 - min(5, SPAN) :], **close)
    with pytest.raises(UserError, match="output_attentions: not token by token, nor with padding or packed texts"):
        model(IDS, attention_mask=torch.ones_like(IDS).index_fill(1, torch.tensor([0]), 0), output_attentions=True)
    with pytest.raises(UserError, match="not token by token, nor with .*; give whole texts"):
        model.generate(IDS, max_new_tokens=2, output_attentions=True, return_dict_in_generate=True)


def test_an_lstm_shows_nothing():
    model = build("lstm")
    for name, text in (("output_hidden_states", "LSTM: does not show"), ("output_attentions", "LSTM has no attention")):
        with pytest.raises(UserError, match=text):
            model(IDS, **{name: True})


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_vectors_in_the_place_of_tokens(kind):
    model = build(kind)
    vectors = model.get_input_embeddings()(IDS)
    assert model(inputs_embeds=vectors).logits.equal(model(IDS).logits)
    assert not model(IDS, inputs_embeds=vectors.flip(1)).logits.equal(model(IDS).logits)
    made = model.generate(inputs_embeds=vectors, max_new_tokens=4, do_sample=False)
    assert made.equal(model.generate(IDS, max_new_tokens=4, do_sample=False)[:, 12:])


@pytest.mark.parametrize("kind", KINDS)
def test_packed_texts(kind):
    """Logits and gradients of texts in one row are those of the texts alone; each row goes on with its last one."""
    model = build(kind)
    lengths = [[4, 5, 3], [1, 7, 4]]
    positions = torch.stack([torch.cat([torch.arange(n) for n in row]) for row in lengths])
    logits = model(IDS, position_ids=positions).logits
    for row, ids, found in zip(lengths, IDS.split(1), logits.split(1)):
        for text, part in zip(ids.split(row, 1), found.split(row, 1)):
            torch.testing.assert_close(part, model(text).logits, **close)
    with torch.no_grad():
        alike = model(IDS, position_ids=positions[:1]).logits
        torch.testing.assert_close(alike, model(IDS, position_ids=positions[:1].expand(2, -1)).logits, **close)
        torch.testing.assert_close(alike[0], logits[0], **close)
        cache = model(IDS[:, :10], position_ids=positions[:, :10], use_cache=True).past_key_values
        later = model(IDS[:, 10:], past_key_values=cache).logits
        torch.testing.assert_close(later, logits[:, 10:].detach(), **close)
    weight = next(model.get_input_embeddings().parameters())
    (gradient,) = torch.autograd.grad(model(IDS, position_ids=positions, shift_labels=IDS).loss, weight)
    texts = [text for row, ids in zip(lengths, IDS) for text in ids.split(row)]
    alone = sum(len(text) * model(text[None], shift_labels=text[None]).loss for text in texts) / IDS.numel()
    torch.testing.assert_close(gradient, torch.autograd.grad(alone, weight)[0], **close)
