"""fb-fairseq explore: the pictures of a text."""

import math
import re

import pytest
import torch

from fb_fairseq.commands.explore import attention, predictions, text, weights
from fb_fairseq.pretrained.vocabulary import Vocabulary
from fb_fairseq.symbols import SPECIAL
from tests.commands.explore.readings import SPAN, TOKENS, parsed, reading_of
from tests.models.language_models import MODELS, AllAttentionLM, RelativeLM, both


def spans(tree, css):
    """The elements of a class."""
    return [element for element in tree.iter() if css in element.get("class", "").split()]


def share_of(element):
    """The number that its colour stands for."""
    return float(re.search(r"--share:([\d.]+)", element.get("style"))[1])


def test_mixture():
    model, built = both(memory_composition="same-and-lower")
    torch.testing.assert_close(torch.tensor(weights.mix(model)), built.decoder.stack.memory.mix().detach())
    assert weights.mix(both(RelativeLM)[0]) == [[1, 0, 0], [0, 1, 0]]
    model, built = both()
    shares = built.decoder.stack.memory.layer_weights.detach().softmax(0)
    told = [float(x) for x in re.findall(r'title="(?:embedding|layer \d): ([\d.]+)"', weights.layer_weights(model))]
    assert told == pytest.approx(shares.tolist(), abs=1e-4)
    assert weights.layer_weights(model).count("ex-mark") == 3, "where training began"
    assert "mark" not in weights.layer_weights(both(memory_composition="average")[0]), "which learns no weights"


def test_surprise_is_drawn():
    reading = reading_of(both()[0])
    shown = text.surprise(reading, 7)
    found = re.findall(r'data-step="(\d+)" style="--share:([\d.]+)" title="([^"]*)"', shown)
    assert [int(step) for step, _, _ in found] == list(range(len(reading)))
    for (_, share, told), bits in list(zip(found, reading.bits))[1:]:
        assert f"surprise {bits:.2f} bits" in told
        assert float(share) == pytest.approx(min(1, bits / math.log2(24)), abs=1e-3)
    assert re.findall(r'ex-selected" data-step="(\d+)"', shown) == ["7"]
    assert f"<b>{sum(reading.bits) / len(TOKENS):.2f} bits per token</b>" in shown


@pytest.mark.parametrize("model", MODELS)
def test_shares(model, monkeypatch):
    """Each row is the whole attention, also where the oldest steps share a column."""
    reading, step = reading_of(both(model)[0]), 9
    names, shares = attention.shares_of(reading, step)
    assert names == (["persistent"] if model is AllAttentionLM else [])
    torch.testing.assert_close(shares[..., -SPAN:], reading.attention(step))
    monkeypatch.setattr(attention, "COLUMNS", 3)
    names, shares = attention.shares_of(reading, step)
    assert names[-1] == "older" and shares.shape[-1] == len(names) + 3
    torch.testing.assert_close(shares.sum(-1), torch.ones_like(shares[..., 0]))
    torch.testing.assert_close(shares[..., -4:-3], reading.attention(step)[..., :2].sum(-1, keepdim=True))


@pytest.mark.parametrize("each_head", [True, False])
@pytest.mark.parametrize("step", [0, 3, 20])
def test_attention_and_memory_are_drawn(step, each_head):
    """A cell for each row and remembered step, and a column for each vector: those remembered, and the new one."""
    reading = reading_of(both(memory_composition="same-and-lower")[0])
    tree = parsed(attention.attention_and_memory(reading, step, each_head, memory=2))
    shares = reading.attention(step) if each_head else reading.attention(step).mean(1, keepdim=True)
    cells = spans(tree, "ex-cell")
    expected = shares.flip(0).flatten()
    assert [share_of(cell) for cell in cells] == pytest.approx(expected.sqrt().tolist(), abs=6e-4)
    for cell, share in zip(cells, expected.tolist()):
        told = re.fullmatch(r"layer \d(, head \d)?: ([\d.]+) % on [^,]*, (?:1 step|\d+ steps) back", cell.get("title"))
        assert float(told[2]) == pytest.approx(100 * share, abs=0.5)
        assert cell.text == (f"{100 * share:.0f}" if share >= 0.005 else None)
    names = [axis.text for axis in spans(tree, "ex-axis")]
    assert names[0] == ("layer 2, head 1" if each_head else "layer 2") and names[-2:] == ["memory", "steps back"]
    rows = shares.shape[0] * shares.shape[1]
    assert len(names) == rows + 2
    vectors_CD = reading.memory(step)[1]
    bars = [[share_of(bar) * (1 if bar.get("class") == "p" else -1) for bar in v] for v in spans(tree, "ex-vector")]
    torch.testing.assert_close(torch.tensor(bars), vectors_CD / vectors_CD.abs().max(), atol=6e-3, rtol=0)
    assert [len(v) for v in spans(tree, "ex-new")] == [vectors_CD.shape[1]]
    assert [tick.text for tick in spans(tree, "ex-tick")][-2:] == ["1", "new"][-min(2, step + 1) :]
    # All rows have as many cells as the grid has columns, one for the name among them.
    grid = spans(tree, "ex-memory")[0]
    columns = 1 + int(re.search(r"--columns:(\d+)", grid.get("style"))[1])
    assert len(grid) == columns * (rows + 3)


@pytest.mark.parametrize("model", MODELS)
def test_every_picture_parses(model):
    """Whatever the text is: what is typed or generated is no HTML of the page."""
    ours, _ = both(model)
    symbols = [*SPECIAL, "<script>alert(1)</script>&", '"', "\u21b5", "long" * 9, *(f"w{i}" for i in range(16))]
    ours.vocabulary = Vocabulary(symbols)
    reading = reading_of(ours)
    for step in (0, 5, len(TOKENS)):
        chart = parsed(predictions.next_token(reading, step, 1, 0))
        shares = [float(number.text[:-2]) for number in spans(chart, "ex-number")]
        best = 100 * reading.next_log_probs(step).exp().topk(10).values
        assert shares[:10] == pytest.approx(best.tolist(), abs=0.5)
        follows = spans(chart, "ex-follows")
        assert [name.text for name in follows] == [symbols[token] for token in reading.tokens[step + 1 : step + 2]]
        tokens = spans(parsed(text.surprise(reading, step)), "ex-token")
        assert [token.text for token in tokens] == ["</s>", *(symbols[token] for token in TOKENS)]
        columns = spans(parsed(attention.attention_and_memory(reading, step, True)), "ex-column")
        seen = [*reading.seen(step), step]
        assert [column.text for column in columns][-len(seen) :] == [tokens[t].text for t in seen]
    assert len(spans(parsed(weights.layer_weights(ours)), "ex-number")) in (2, 3)
