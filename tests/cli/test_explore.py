"""The page of fb-fairseq explore: models that it reads, and the page in a real browser."""

import re
import socket
import time

import pytest

from fb_fairseq.commands.explore import command
from fb_fairseq.commands.explore.reading import Reading, load
from fb_fairseq.commands.export.command import main as export
from tests.cli.browser import Browser, missing_programs
from tests.cli.explored import serving
from tests.cli.fairseq_commands import train
from tests.cli.own_commands import one_line

TEXT = "bad tale.\nso"


def read(path, text, data=None):
    """A text as a model on the page reads it."""
    reading = Reading(load(str(path), data and str(data), cpu=True))
    reading.read(reading.model.vocabulary.encode(text))
    return reading


def test_words(word_data, tmp_path):
    """A line break is </s>, as at the end of each line in training; also of the exported model."""
    pytest.importorskip("transformers")
    train(word_data, tmp_path / "run", max_update=3, disable_validation=True)
    checkpoint = tmp_path / "run/checkpoint_last.pt"
    export([str(checkpoint), "--to", str(tmp_path / "model")])
    model = load(str(checkpoint), None, cpu=True)
    text = f"{model.vocabulary.symbols[5]} never-seen\n{model.vocabulary.symbols[4]}"
    ours = read(checkpoint, text)
    exported = read(tmp_path / "model", text)
    assert ours.tokens == exported.tokens == [2, 5, 3, 2, 4]
    assert exported.bits == pytest.approx(ours.bits, rel=1e-5, abs=1e-5)
    for each in (ours, exported):
        assert each.model.vocabulary.decode(each.tokens[1:]) == text.replace("never-seen", "<unk>")


def test_an_lstm_is_refused(capsys, language_models):
    pytest.importorskip("gradio")
    lstm = language_models["streaming_lstm_lm"]
    line = one_line(capsys, command.main, lstm, "--port", 0)
    assert f"{lstm}: attends to nothing (an LSTM); give feedback_transformer_lm, " in line


STEP = "return Number(document.querySelector('.ex-selected').dataset.step)"
COLOUR = "return getComputedStyle(document.querySelector('#surprise h3')).color"
LENGTH = "return document.querySelectorAll('.ex-token').length"


@pytest.mark.slow
def test_in_a_browser(commands, language_models, byte_data, tmp_path):
    """Read a text, look at a step, generate, stop; in light and dark. Nothing is asked of other machines, nothing is
    served to them, and Ctrl-C ends it."""
    pytest.importorskip("gradio")
    if missing_programs():
        pytest.skip(f"not installed: {', '.join(missing_programs())} (Debian: apt install chromium-driver)")
    checkpoint = language_models["feedback_transformer_lm"]
    reading = read(checkpoint, TEXT, byte_data)
    page = serving(commands, tmp_path / "printed", checkpoint, "--data", byte_data, "--prompt", "dot", "--cpu")
    with page as address, Browser() as browser:
        host, port = re.fullmatch(r"http://([\d.]+):(\d+)/", address).groups()
        assert host == "127.0.0.1"
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.2", int(port)), timeout=5)
        browser.open(f"{address}?__theme=light")
        browser.until(f"{LENGTH} === 4")
        light = browser.script(COLOUR)
        browser.type("#text textarea", TEXT)
        browser.click("#read")
        browser.until(f"{LENGTH} === {len(TEXT) + 1}")
        assert f"{sum(reading.bits) / len(TEXT):.2f} bits per byte" in browser.text("#surprise")
        titles = browser.script("return [...document.querySelectorAll('.ex-token')].map(e => e.title)")
        assert all(f"surprise {bits:.2f} bits" in title for title, bits in list(zip(titles, reading.bits))[1:])
        assert browser.script(STEP) == len(TEXT)

        browser.click("[data-step='5']")
        browser.until(f"{STEP} === 5")
        browser.until("return /Step 5 reads/.test(document.querySelector('#attention').textContent)")
        assert f"after step 5; entropy {reading.entropy(5):.2f} bits" in browser.text("#next")
        rows = browser.script("return [...document.querySelectorAll('#attention .ex-axis')].map(e => e.textContent)")
        layers, heads, _ = reading.attention(5).shape
        assert sum(name.startswith("layer ") for name in rows) == layers * heads
        browser.until("document.querySelectorAll('input[type=radio]')[1].click(); return true")
        browser.until("return !/head 1/.test(document.querySelector('#attention').textContent)")

        browser.click("#one")
        browser.until(f"{LENGTH} === {len(TEXT) + 2}")
        browser.until(f"{STEP} === {len(TEXT) + 1}")
        browser.click("#many")
        browser.until(f"{LENGTH} > {len(TEXT) + 3}")
        browser.click("#stop")
        time.sleep(1)
        stopped = browser.script(LENGTH)
        time.sleep(1)
        assert browser.script(LENGTH) == stopped
        browser.click("#one")
        browser.until(f"{LENGTH} === {stopped + 1}")
        typed = browser.script("return document.querySelector('#text textarea').value")
        assert typed.startswith(TEXT)

        wide = browser.script("return document.documentElement.scrollWidth")
        assert wide <= 1280, "nothing is cut off"
        browser.open(f"{address}?__theme=dark")
        browser.until(f"{LENGTH} === 4")
        assert browser.script(COLOUR) != light
        assert browser.errors() == []
        asked = browser.requests()
        assert len(asked) > 10 and [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
