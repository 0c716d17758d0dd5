"""fb-fairseq explore: the page, without a browser, and where it is served."""

import socket
import sys

import pytest
import torch

from fb_fairseq import byte_codec
from fb_fairseq.commands import main
from fb_fairseq.commands.explore import command
from fb_fairseq.commands.explore.reading import EOS, Reading
from fb_fairseq.errors import UserError
from fb_fairseq.pretrained.vocabulary import Vocabulary
from fb_fairseq.symbols import SPECIAL
from tests.cli.own_commands import one_line
from tests.commands.explore.readings import SPAN, parsed
from tests.models.language_models import MODELS, both


@pytest.fixture
def page():
    pytest.importorskip("gradio")
    from fb_fairseq.commands.explore import page

    return page


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
    ours, _ = both(model)
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
    explorer = page.Explorer(both()[0], most=9)
    before = explorer.read("word1 word2")
    expected = [*before.tokens, before.drawn(2, 0, 0).argmax()]
    (after,) = explorer.generate("word1 word2", before, 1, 0, 0)
    assert after is before and after.tokens == expected
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


def test_what_the_page_gets(page):
    """The reading, its text if it is new, the pictures of the last step, and the slider at this step."""
    explorer = page.Explorer(both()[0], most=9)
    settings = (0, 0, False, 1)  # greedy; a row of attention for each layer; the memory of layer 1
    reading, *shown = explorer.show_read("word1 word2", None, *settings)
    assert explorer.text_of(reading) == "word1 word2" and shown == explorer.show(reading, 2, *settings)
    assert shown[-1] == page.gr.update(maximum=2, value=2)
    (generated,) = explorer.show_generated("word1 word2", reading, 1, 1, *settings)
    assert generated == [reading, explorer.text_of(reading), *explorer.show(reading, 3, *settings)]
    assert len(reading) == 4 and explorer.show(reading, 99, *settings) == explorer.show(reading, 3, *settings)


def test_the_first_text_fits(page):
    """Into --max-steps; the user's is refused."""
    ours, _ = both()
    of_bytes = Vocabulary([*SPECIAL, *byte_codec.SYMBOLS])
    assert page.example(of_bytes, 5) == "def m" and len(ours.vocabulary.encode(page.example(ours.vocabulary, 3))) == 3
    with pytest.raises(UserError, match="10 tokens are too many"):
        page.build_page(ours, 9, "word1 " * 10)


def test_a_document_ends_in_the_page(page, monkeypatch):
    """A byte model's </s> is not read on."""
    ours, _ = both()
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
    built = page.build_page(both()[0], 9)
    server = pytest.importorskip("fb_fairseq.commands.explore.server")
    server.serve(built, host, port)
    try:
        with socket.socket(family) as client:
            client.connect((host, port))
        with pytest.raises(ConnectionRefusedError), socket.socket() as client:
            client.connect(("127.0.0.2", port))
        assert (
            built.show_error
            and built.share is False
            and built.local_url == f"http://{f'[{host}]' if ':' in host else host}:{port}/"
        )
    finally:
        built.close(verbose=False)
