"""Attention to the encoder and all layers' representations, as results with gradients."""

import pytest
import torch

from fb_fairseq.errors import UserError
from tests.models.decoders import PAD, batch, build


def sample():
    """Two sentences, and their translations."""
    source = batch([5, 3])
    target = batch([4, 2])
    return dict(src_tokens=source, src_lengths=source.ne(PAD).sum(1), prev_output_tokens=target)


def test_only_attention_that_is_asked_for_runs_in_the_reference(monkeypatch):
    """Without alignments training runs --step-loop's loop, and returns no attention."""
    model = build().train()
    monkeypatch.setattr(model.decoder.stack, "run_reference_loop", lambda *_: pytest.fail("the reference loop ran"))
    words = sample()
    assert model(**words)[1] == {"attn": [None], "inner_states": None}
    monkeypatch.undo()
    attention = model(**words, alignment_layer=1, alignment_heads=1)[1]["attn"][0]
    assert attention.requires_grad and attention.shape == (2, 4, 5)
    torch.testing.assert_close(model.eval()(**words, alignment_layer=1, alignment_heads=1)[1]["attn"][0], attention)


@pytest.mark.parametrize("train", [False, True])
def test_representations_of_all_layers(train):
    """The embedding, then each layer's output; the same logits as without, and gradients."""
    model = build(decoder_normalize_before=True).double().train(train)
    words = sample()
    plain, _ = model(**words)
    logits, extra = model(**words, return_all_hiddens=True)
    states, decoder = extra["inner_states"], model.decoder
    torch.testing.assert_close(logits, plain)
    assert [state.shape for state in states] == [(4, 2, 12)] * 4
    torch.testing.assert_close(states[0].transpose(0, 1), decoder._embed(words["prev_output_tokens"], 0))
    torch.testing.assert_close(decoder.output_layer(decoder.layer_norm(states[-1].transpose(0, 1))), logits)
    states[2].sum().backward()
    grads = {name: parameter.grad for name, parameter in decoder.named_parameters()}
    assert grads["layers.1.fc2.weight"].any() and grads["layers.2.fc2.weight"].any(), "through the memory"
    with pytest.raises(UserError, match="return_all_hiddens: not in decoding"):
        model.decoder(words["prev_output_tokens"], incremental_state={}, return_all_hiddens=True)
