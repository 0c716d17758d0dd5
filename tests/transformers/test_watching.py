"""Hidden states, attention, vectors in the place of tokens, packed texts, and generation that goes on."""

import copy

import pytest
import torch

pytest.importorskip("transformers")
from transformers import LogitsProcessorList  # noqa: E402
from transformers.generation import BaseStreamer  # noqa: E402

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
        model.generate(IDS, max_new_tokens=3, output_attentions=True, return_dict_in_generate=True)


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
        cache = model(IDS[:, :10], position_ids=positions[:, :10], use_cache=True).past_key_values
        later = model(IDS[:, 10:], past_key_values=cache).logits
        torch.testing.assert_close(later, logits[:, 10:].detach(), **close)
    model.train()
    loss = model(IDS, position_ids=positions, shift_labels=IDS).loss
    (gradient,) = torch.autograd.grad(loss, model.get_input_embeddings().parameters().__next__())
    assert gradient.isfinite().all()


@pytest.mark.parametrize("kind", ["feedback", "transformer", "lstm", "feedback-vectors"])
@pytest.mark.parametrize("beams", [1, 3])
@torch.no_grad()
def test_generation_that_goes_on(kind, beams):
    """With the new tokens, or with the whole text: as from the whole text without a memory."""
    model = build(kind)
    options = dict(max_new_tokens=5, do_sample=False, num_beams=beams)
    expected = model.generate(IDS, **options)
    for first in (1, 4, 9):
        kept = lambda first=first: model(IDS[:, :first], use_cache=True).past_key_values
        new = IDS[:, first:]
        if first == 1:  # one row begins with the token that was read, the other one does not
            with pytest.raises(UserError, match="^input_ids: some rows begin with the text .* give whole texts"):
                model.generate(new, past_key_values=kept(), **options)
            continue
        for mask in (None, torch.ones_like(new), torch.ones_like(IDS)):
            found = model.generate(new, attention_mask=mask, past_key_values=kept(), **options)
            assert found.equal(expected[:, first:])
        assert model.generate(input_ids=new, past_key_values=kept(), **options).equal(expected[:, first:])
        assert model.generate(IDS, past_key_values=kept(), **options).equal(expected)
    made = model.generate(new, past_key_values=kept(), return_dict_in_generate=True, **options)
    assert made.sequences.equal(expected[:, first:])
    made = model.generate(new, past_key_values=kept(), max_length=new.shape[1] + 2, do_sample=False)
    assert made.shape == (2, new.shape[1] + 2)
    with pytest.raises(UserError, match="past_key_values: holds 2 texts, not 1; give as many"):
        model.generate(new[:1], past_key_values=kept(), **options)
    with pytest.raises(UserError, match="past_key_values: has read this text already"):
        model.generate(IDS[:, :first], past_key_values=kept(), **options)


@pytest.mark.parametrize("padded", [False, True])
@torch.no_grad()
def test_a_text_that_begins_like_another(padded):
    """Of a memory's text all tokens are compared; streamers, processors and lengths see the new text alone, and a
    conversation goes on in it."""
    model = build("feedback")
    header = torch.randint(4, 20, (2, 40))
    one, two = (torch.cat([header, torch.randint(4, 20, (2, n))], 1) for n in (5, 30))
    mask = torch.ones_like(one)
    if padded:
        one[0, :3], mask[0, :3] = 1, 0
    cache = model(one, attention_mask=mask, use_cache=True).past_key_values
    seen = []

    class Streamer(BaseStreamer):
        put = staticmethod(lambda tokens: seen.append(tokens.reshape(-1).tolist()))
        end = staticmethod(lambda: None)

    def processor(tokens, scores):
        seen.append(tokens.shape[1])
        return scores

    options = dict(max_new_tokens=3, do_sample=False, repetition_penalty=1.0)
    whole = torch.cat([one, two], 1)
    whole_mask = torch.cat([mask, torch.ones_like(two)], 1)
    expected = model.generate(whole, attention_mask=whole_mask, **options)[:, one.shape[1] :]
    masked = dict(attention_mask=whole_mask, past_key_values=copy.deepcopy(cache))  # (a mask of the whole text)
    assert model.generate(two, **masked, **options).equal(expected)
    copied = copy.deepcopy(cache)
    found = model.generate(two, past_key_values=copied, logits_processor=LogitsProcessorList([processor]), **options)
    assert found.equal(expected) and seen == [70, 71, 72]
    more = torch.cat([found, header[:, :4]], 1)
    later = model.generate(more, past_key_values=copied, **options)
    whole = torch.cat([one, more], 1)
    whole_mask = torch.cat([mask, torch.ones_like(more)], 1)
    assert later.equal(model.generate(whole, attention_mask=whole_mask, **options)[:, one.shape[1] :])
    seen.clear()
    if not padded:
        kept = model(one[:1], use_cache=True).past_key_values
        found = model.generate(two[:1], past_key_values=kept, streamer=Streamer(), **options)
        assert found.equal(expected[:1]) and sum(seen, []) == found[0].tolist()
