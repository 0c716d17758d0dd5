"""fb-fairseq explore: what is read, against models run by hand."""

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from fb_fairseq.commands.explore.reading import EOS, Reading
from tests.commands.explore.readings import SPAN, TOKENS, reading_of
from tests.models.language_models import MODELS, AllAttentionLM, both

ADAPTIVE = dict(adaptive_softmax_cutoff="10,16", adaptive_softmax_factor=2, adaptive_softmax_bias=True)
WITH_SPANS = dict(adaptive_span=True, adaptive_span_init=0.4, adaptive_span_ramp=1)


@pytest.mark.parametrize("changes", [{}, ADAPTIVE, WITH_SPANS], ids=["plain", "adaptive", "spans"])
@pytest.mark.parametrize("model", MODELS)
def test_surprise_and_next_token(model, changes):
    """Those of fairseq's model, which reads all of the text at once."""
    ours, built = both(model, **changes)
    reading = reading_of(ours)
    text = torch.tensor([[EOS, *TOKENS]])
    with torch.no_grad():
        lprobs_TV = built.get_normalized_probs(built(text), log_probs=True)[0]
    expected = -lprobs_TV[:-1].gather(1, text[0, 1:, None])[:, 0] / math.log(2)
    torch.testing.assert_close(torch.tensor(reading.bits[1:]), expected, rtol=1e-4, atol=1e-4)
    for step in (0, 9, len(TOKENS)):
        torch.testing.assert_close(reading.next_log_probs(step), lprobs_TV[step], rtol=1e-4, atol=1e-4)
        probabilities = lprobs_TV[step].exp()
        entropy = -(probabilities * probabilities.log2()).sum().item()
        assert reading.entropy(step) == pytest.approx(entropy, rel=1e-4)


@pytest.mark.parametrize("model", MODELS)
def test_attention_and_memory(model):
    """Those of the stack for the whole text: by step, oldest first; and the memory after the steps before."""
    ours, built = both(model)
    reading, stack = reading_of(ours), built.decoder.stack
    x_TBD = built.decoder.embed(torch.tensor([[EOS, *TOKENS]]), 0).transpose(0, 1)
    with torch.no_grad():
        weights_LHTS = stack.memory_attention(x_TBD)[0][:, 0]
    for step in (0, 1, SPAN, len(TOKENS)):
        seen = reading.seen(step)
        assert list(seen) == list(range(max(0, step - SPAN), step))
        found_LHC = reading.attention(step)
        for column, t in enumerate(seen):
            expected = weights_LHTS[:, :, step, step - t - 1]
            torch.testing.assert_close(found_LHC[..., column], expected, rtol=1e-4, atol=1e-5)
        assert found_LHC.shape[-1] == len(seen)
        if step:
            with torch.no_grad():
                _, state = stack.run_block(x_TBD[:step])
            torch.testing.assert_close(reading.memory(step)[:, :-1], state.memory_KCBD[:, :, 0], rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(reading.memory(step - 1)[:, -1], reading.memory(step)[:, -2])
            sums_LH = found_LHC.sum(-1)
            assert (sums_LH < 0.99).all() if model is AllAttentionLM else sums_LH.min() == pytest.approx(1)
    assert reading.memory(0).shape[1] == 1


@pytest.mark.parametrize("model", MODELS)
def test_reading_goes_on(model):
    """Token by token as at once."""
    ours, _ = both(model)
    whole = reading_of(ours)
    parts = Reading(ours)
    for token in TOKENS:
        parts.read([token])
    assert parts.tokens == whole.tokens
    torch.testing.assert_close(torch.tensor(parts.bits), torch.tensor(whole.bits), rtol=1e-4, atol=1e-4)
    for step in (3, len(TOKENS)):
        torch.testing.assert_close(parts.memory(step), whole.memory(step), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(parts.attention(step), whole.attention(step), rtol=1e-4, atol=1e-5)


def test_windows_read_at_the_same_time():
    """Threads do not see each other's steps."""
    ours, _ = both()
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: reading_of(ours).bits, range(4)))
    assert found == [reading_of(ours).bits] * 4


def test_drawing():
    """The marks are what tokens are drawn with; special symbols are not drawn."""
    reading = reading_of(both()[0])
    step = len(reading) - 1
    lprobs = reading.next_log_probs(step)
    allowed = [token for token in range(len(lprobs)) if token not in (0, 1, 3)]
    three = sorted(allowed, key=lambda token: -lprobs[token])[:3]
    for temperature, topk in ((0, 0), (1.5, 1)):
        assert reading.drawn(step, temperature, topk).nonzero().tolist() == [[three[0]]]
    drawn = reading.drawn(step, 0.5, 3)
    torch.testing.assert_close(drawn[three], torch.softmax(lprobs[three] / 0.5, 0))
    assert drawn.sum() == pytest.approx(1) and (drawn > 0).sum() == 3
