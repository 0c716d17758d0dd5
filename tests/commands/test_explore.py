"""fb-fairseq explore: what the page shows, against models run by hand; and bad input."""

import math
import re
import socket
import sys
import threading
import xml.etree.ElementTree as ElementTree

import pytest
import torch
from fairseq.data import Dictionary

from fb_fairseq import byte_codec
from fb_fairseq.commands import main
from fb_fairseq.commands.explore import command, pictures
from fb_fairseq.commands.explore.reading import EOS, UNK, Reading
from fb_fairseq.commands.plot.measures import mix
from fb_fairseq.commands.preprocess_bytes import byte_dictionary
from fb_fairseq.errors import UserError
from fb_fairseq.pretrained.vocabulary import Vocabulary
from tests.cli.own_commands import one_line
from tests.models.language_models import (
    MODELS,
    SIZES,
    AllAttentionLM,
    FeedbackLM,
    RelativeLM,
    both,
    dictionary,
)

SPAN, TOKENS = SIZES["attention_span"], [*range(4, 24), 7, 9, 5]
SPECIAL = dictionary().symbols[: UNK + 1]
ADAPTIVE = dict(adaptive_softmax_cutoff="10,16", adaptive_softmax_bias=True)
WITH_SPANS = dict(adaptive_span=True, adaptive_span_init=0.4, adaptive_span_ramp=1)


def explored(model=FeedbackLM, **changes):
    return both(model, **changes)


def reading_of(model, tokens=TOKENS):
    reading = Reading(model)
    reading.read(tokens)
    return reading


@pytest.mark.parametrize("changes", [{}, ADAPTIVE, WITH_SPANS], ids=["plain", "adaptive", "spans"])
@pytest.mark.parametrize("model", MODELS)
def test_surprise_and_next_token(model, changes):
    """Those of fairseq's model, which reads all of the text at once."""
    ours, built = explored(model, **changes)
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
    ours, built = explored(model)
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
        if step:
            sums_LH = found_LHC.sum(-1)
            assert (sums_LH < 0.99).all() if model is AllAttentionLM else sums_LH.min() == pytest.approx(1)
    assert reading.memory(0).shape[1] == 1


@pytest.mark.parametrize("model", MODELS)
def test_reading_goes_on(model):
    """Token by token as at once; a copy goes on alone."""
    ours, _ = explored(model)
    whole = reading_of(ours)
    parts = Reading(ours)
    for token in TOKENS[:-1]:
        parts.read([token])
    other = parts.copy()
    other.read([4, 4])
    parts.read(TOKENS[-1:])
    assert parts.tokens == whole.tokens and len(other) == len(whole) + 1
    torch.testing.assert_close(torch.tensor(parts.bits), torch.tensor(whole.bits), rtol=1e-4, atol=1e-4)
    for step in (3, len(TOKENS)):
        torch.testing.assert_close(parts.memory(step), whole.memory(step), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(parts.attention(step), whole.attention(step), rtol=1e-4, atol=1e-5)


def test_windows_read_at_the_same_time():
    """Threads do not see each other's steps."""
    ours, _ = explored()
    expected, found = reading_of(ours).bits, []
    threads = [threading.Thread(target=lambda: found.append(reading_of(ours).bits)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


def test_drawing():
    """The marks are what tokens are drawn with; special symbols are not drawn."""
    reading = reading_of(explored()[0])
    step = len(reading) - 1
    lprobs = reading.next_log_probs(step)
    allowed = [token for token in range(len(lprobs)) if token not in (0, 1, 3)]
    three = sorted(allowed, key=lambda token: -lprobs[token])[:3]
    for temperature, topk in ((0, 0), (1.5, 1)):
        assert reading.drawn(step, temperature, topk).nonzero().tolist() == [[three[0]]]
    drawn = reading.drawn(step, 0.5, 3)
    torch.testing.assert_close(drawn[three], torch.softmax(lprobs[three] / 0.5, 0))
    assert drawn.sum() == pytest.approx(1) and (drawn > 0).sum() == 3


def test_mixture():
    model, built = explored(memory_composition="same-and-lower")
    torch.testing.assert_close(torch.tensor(mix(model)), built.decoder.stack.memory.mix().detach())
    assert mix(explored(RelativeLM)[0]) == [[1, 0, 0], [0, 1, 0]]
    model, built = explored()
    shares = built.decoder.stack.memory.layer_weights.detach().softmax(0)
    told = [float(x) for x in re.findall(r'title="(?:embedding|layer \d): ([\d.]+)"', pictures.layer_weights(model))]
    assert told == pytest.approx(shares.tolist(), abs=1e-4)


def test_bytes_as_text():
    vocabulary = Vocabulary(byte_dictionary().symbols)
    tokens = vocabulary.encode("é\n </s>")
    assert vocabulary.of_bytes and vocabulary.unit == "byte" and len(tokens) == 2 + 2 + 4
    assert vocabulary.decode(tokens) == "é\n </s>" and vocabulary.decode(tokens[:1]) == "\ufffd"
    assert list(map(vocabulary.label, tokens[:5])) == [r"\xC3", r"\xA9", "\u21b5", "\u2423", "<"]
    assert vocabulary.labels([EOS, *tokens[:5]]) == ["</s>", "é", "·", "\u21b5", "\u2423", "<"]
    assert vocabulary.labels([EOS, *tokens[1:3]]) == ["</s>", r"\xA9", "\u21b5"]
    assert vocabulary.labels([EOS, *vocabulary.encode("да中🙂")]) == ["</s>", *"д·а·中··🙂···"]
    assert vocabulary.next_label([EOS, *tokens[:1]], tokens[1]) == "é"
    assert vocabulary.next_label([EOS, *tokens[1:2]], tokens[0]) == r"\xC3"
    assert vocabulary.next_label([EOS, *vocabulary.encode("中中🙂")[:-1]], vocabulary.encode("🙂")[-1]) == "🙂"
    assert vocabulary.next_label([EOS], tokens[2]) == "\u21b5" and vocabulary.next_label([EOS], EOS) == "</s>"
    assert [vocabulary.ends_line(token) for token in tokens[:4]] == [False, False, True, False]


def test_words_as_text():
    """A line break is </s>, and unknown words are <unk>."""
    words = Dictionary()
    cat = words.add_symbol("cat")
    vocabulary = Vocabulary(words.symbols)
    assert vocabulary.encode(" cat  dog\n\ncat") == [cat, UNK, EOS, EOS, cat] and vocabulary.unit == "token"
    assert vocabulary.decode([cat, UNK, EOS, cat]) == "cat <unk>\ncat"
    assert vocabulary.label(EOS) == "\u21b5" and vocabulary.ends_line(EOS) and not vocabulary.ends_line(cat)
    assert Vocabulary(words.symbols, line_ends=False).encode("cat\ncat") == [cat, cat]


def test_surprise_is_drawn():
    reading = reading_of(explored()[0])
    shown = pictures.surprise(reading, 7)
    found = re.findall(r'data-step="(\d+)" style="--share:([\d.]+)" title="([^"]*)"', shown)
    assert [int(step) for step, _, _ in found] == list(range(len(reading)))
    for (_, share, told), bits in list(zip(found, reading.bits))[1:]:
        assert f"surprise {bits:.2f} bits" in told
        assert float(share) == pytest.approx(min(1, bits / math.log2(24)), abs=1e-3)
    assert re.findall(r'ex-selected" data-step="(\d+)"', shown) == ["7"]
    assert f"<b>{sum(reading.bits) / len(TOKENS):.2f} bits per token</b>" in shown


def parsed(shown):
    """A picture as an XML tree: browsers mend what is broken, and leave out what follows."""
    return ElementTree.fromstring(shown.replace("&nbsp;", " "))


def spans(tree, css):
    """The elements of a class."""
    return [element for element in tree.iter() if css in element.get("class", "").split()]


def share_of(element):
    """The number that its colour stands for."""
    return float(re.search(r"--share:([\d.]+)", element.get("style"))[1])


@pytest.mark.parametrize("model", MODELS)
def test_shares(model, monkeypatch):
    """Each row is the whole attention, also where the oldest steps share a column."""
    reading, step = reading_of(explored(model)[0]), 9
    names, shares = pictures.shares_of(reading, step)
    assert names == (["persistent"] if model is AllAttentionLM else [])
    torch.testing.assert_close(shares[..., -SPAN:], reading.attention(step))
    monkeypatch.setattr(pictures, "COLUMNS", 3)
    names, shares = pictures.shares_of(reading, step)
    assert names[-1] == "older" and shares.shape[-1] == len(names) + 3
    torch.testing.assert_close(shares.sum(-1), torch.ones_like(shares[..., 0]))
    torch.testing.assert_close(shares[..., -4:-3], reading.attention(step)[..., :2].sum(-1, keepdim=True))


@pytest.mark.parametrize("each_head", [True, False])
@pytest.mark.parametrize("step", [0, 3, 20])
def test_attention_and_memory_are_drawn(step, each_head):
    """A cell for each row and remembered step, and a column for each vector: those remembered, and the new one."""
    reading = reading_of(explored(memory_composition="same-and-lower")[0])
    tree = parsed(pictures.attention_and_memory(reading, step, each_head, memory=2))
    shares = reading.attention(step) if each_head else reading.attention(step).mean(1, keepdim=True)
    cells = spans(tree, "ex-cell")
    rows = [layer_and_head for layer in shares.flip(0) for layer_and_head in layer]
    expected = torch.stack(rows).flatten()
    assert [share_of(cell) for cell in cells] == pytest.approx(expected.sqrt().tolist(), abs=6e-4)
    for cell, share in zip(cells, expected.tolist()):
        told = re.fullmatch(r"layer \d(, head \d)?: ([\d.]+) % on [^,]*, \d+ steps back", cell.get("title"))
        assert float(told[2]) == pytest.approx(100 * share, abs=0.5)
        assert cell.text == (f"{100 * share:.0f}" if share >= 0.005 else None)
    names = [axis.text for axis in spans(tree, "ex-axis")]
    assert names[0] == ("layer 2, head 1" if each_head else "layer 2") and names[-2:] == ["memory", "steps back"]
    assert len(names) == len(rows) + 2
    vectors_CD = reading.memory(step)[1]
    bars = [[share_of(bar) * (1 if bar.get("class") == "p" else -1) for bar in v] for v in spans(tree, "ex-vector")]
    torch.testing.assert_close(torch.tensor(bars), vectors_CD / vectors_CD.abs().max(), atol=6e-3, rtol=0)
    assert [len(v) for v in spans(tree, "ex-new")] == [vectors_CD.shape[1]]
    assert [tick.text for tick in spans(tree, "ex-tick")][-2:] == ["1", "new"][-min(2, step + 1) :]
    # All rows have as many cells as the grid has columns, one for the name among them.
    grid = spans(tree, "ex-memory")[0]
    columns = 1 + int(re.search(r"--columns:(\d+)", grid.get("style"))[1])
    assert len(grid) == columns * (len(rows) + 3)


@pytest.mark.parametrize("model", MODELS)
def test_every_picture_parses(model):
    """Whatever the text is: what is typed or generated is no HTML of the page."""
    ours, _ = explored(model)
    symbols = [*SPECIAL, "<script>alert(1)</script>&", '"', "\u21b5", "long" * 9, *(f"w{i}" for i in range(16))]
    ours.vocabulary = Vocabulary(symbols)
    reading = reading_of(ours)
    for step in (0, 5, len(TOKENS)):
        chart = parsed(pictures.next_token(reading, step, 1, 0))
        shares = [float(number.text[:-2]) for number in spans(chart, "ex-number")]
        best = 100 * reading.next_log_probs(step).exp().topk(10).values
        assert shares[:10] == pytest.approx(best.tolist(), abs=0.5)
        follows = spans(chart, "ex-follows")
        assert [name.text for name in follows] == [symbols[token] for token in reading.tokens[step + 1 : step + 2]]
        tokens = spans(parsed(pictures.surprise(reading, step)), "ex-token")
        assert [token.text for token in tokens] == ["</s>", *(symbols[token] for token in TOKENS)]
        columns = spans(parsed(pictures.attention_and_memory(reading, step, True)), "ex-column")
        seen = [*reading.seen(step), step]
        assert [column.text for column in columns][-len(seen) :] == [tokens[t].text for t in seen]
    assert len(spans(parsed(pictures.layer_weights(ours)), "ex-number")) in (2, 3)


def test_port_in_use(capsys, monkeypatch):
    """It is checked first: before gradio and the model are loaded."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        monkeypatch.setitem(sys.modules, "gradio", None)  # nor is it missed before
        line = one_line(capsys, command.main, "a.pt", "--port", port)
        assert f"--host 127.0.0.1 --port {port}: cannot be served (" in line and "or 0 for any that is free" in line
        assert command.free_port("127.0.0.1", 0) not in (0, port)
    for more in ("--port", -1), ("--port", 1 << 16), ("--host", "no.such.host.invalid"):
        assert f"{more[0]} {more[1]}" in one_line(capsys, command.main, "a.pt", *more)


# The page itself, without a browser.


@pytest.fixture
def page():
    pytest.importorskip("gradio")
    from fb_fairseq.commands.explore import page

    return page


def test_without_gradio(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    monkeypatch.delitem(sys.modules, "fb_fairseq.commands.explore.page", raising=False)
    with pytest.raises(SystemExit) as stop:
        main(["explore", "a.pt"])
    assert stop.value.code == 2
    line = "fb-fairseq explore: error: gradio is not installed; pip install 'fb_fairseq[explore]'\n"
    assert capsys.readouterr().err == line


@pytest.mark.parametrize("model", MODELS)
def test_page(page, model):
    ours, _ = explored(model)
    built = page.build_page(ours, 100)
    assert built.analytics_enabled is False and built.title.endswith("a.pt")
    labels = {getattr(block, "label", None) for block in built.blocks.values()}
    assert {"Text", "Temperature", "Top-k", "Step", "Rows of attention", "Memory of layer"} <= labels
    (head,) = (block.value for block in built.blocks.values() if "ex-head" in str(getattr(block, "value", "")))
    parameters = sum(p.numel() for p in ours.parameters()) / 1e6
    sizes = f"2 layers × 3 heads, width 12, remembers {SPAN} steps, {parameters:.1f} million parameters, reads tokens"
    assert "".join(parsed(head).itertext()) == f"{page.kind_of(ours)}a.pt: {sizes}"
    buttons = {block.value for block in built.blocks.values() if type(block).__name__ == "Button"}
    assert buttons == {"Read", "Next token", "Generate 40", "Stop"}


def test_generating_in_the_page(page):
    """After the text as it is typed; without a change, the reading goes on. It ends at --max-steps."""
    explorer = page.Explorer(explored()[0], most=9)
    before = explorer.read("word1 word2")
    (after,) = explorer.generate("word1 word2", before, 1, 0, 0)
    assert after.tokens[:3] == before.tokens and len(after) == 4 and after.tokens[3] == before.drawn(2, 0, 0).argmax()
    assert explorer.text_of(after).startswith("word1 word2 word")
    (other,) = explorer.generate("word5", after, 1, 0, 0)
    assert other.tokens[:2] == [EOS, explorer.model.vocabulary.encode("word5")[0]] and len(other) == 3
    steps = explorer.generate("word5", None, 40, 1, 0)
    with pytest.raises(page.gr.Error, match="The text has 9 steps now"):
        for reading in steps:
            assert len(reading) <= 10
    assert len(reading) == 10, "</s> and nine tokens"
    with pytest.raises(page.gr.Error, match=r"10 tokens are too many: the page reads 9 at most \(--max-steps\)"):
        explorer.read("word1 " * 10)


def test_a_document_ends_in_the_page(page, monkeypatch):
    """A byte model's </s> is not read on."""
    ours, _ = explored()
    ours.vocabulary = Vocabulary([*SPECIAL, *byte_codec.SYMBOLS])
    monkeypatch.setattr(Reading, "drawn", lambda *_: torch.eye(9)[EOS])
    monkeypatch.setattr(page.gr, "Info", lambda text: told.append(text))
    told = []
    assert list(page.Explorer(ours, 9).generate("", None, 3, 1, 0)) == []
    assert told == ["The model ended the text here (</s>)."]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_only_this_machine_is_served(page, monkeypatch, host):
    """At the address alone that was asked for, also where a proxy is set for other machines."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        port = command.free_port(host, 0)
    except UserError:
        pytest.skip("this machine has no IPv6")
    for name, value in (("http_proxy", "http://127.0.0.1:9"), ("no_proxy", "example.org"), ("NO_PROXY", "")):
        monkeypatch.setenv(name, value)
    built = page.build_page(explored()[0], 9)
    page.serve(built, host, port)
    try:
        with socket.socket(family) as client:
            client.connect((host, port))
        with pytest.raises(ConnectionRefusedError), socket.socket() as client:
            client.connect(("127.0.0.2", port))
        assert built.share is False and built.local_url == f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    finally:
        built.close(verbose=False)
