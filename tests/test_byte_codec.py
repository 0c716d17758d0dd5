"""The byte codec: encoding is lossless, and any bytes can be typed as a prompt."""

import re

import pytest

from fb_fairseq import byte_codec

EVERY_BYTE = bytes(range(256))


def test_every_byte_has_its_symbol():
    assert len(set(byte_codec.SYMBOLS)) == 256
    assert not any(set(symbol) & set(" \n\t") for symbol in byte_codec.SYMBOLS), "fairseq splits at white space"
    assert byte_codec.decode(byte_codec.encode(EVERY_BYTE)) == EVERY_BYTE
    assert byte_codec.encode(b"a \n") == ["a", "<0x20>", "<0x0A>"]
    assert byte_codec.decode(["a", "</s>", "<unk>", "b"]) == b"ab"


def test_prompts():
    assert byte_codec.unescape(r"a\nb\t\\n \x00\xfF é") == b"a\nb\t\\n \x00\xff " + "é".encode()
    for data in (EVERY_BYTE, "naïve\r\n\\x41 ☃".encode(), b"\xc3(", b"\\"):
        line = byte_codec.escape(data)
        assert "\n" not in line and line.isprintable()
        assert byte_codec.unescape(line) == data


@pytest.mark.parametrize("escape", ["", "\n", "q", "é", "x4", "xzz"])
def test_unknown_escapes_are_refused(escape):
    with pytest.raises(ValueError, match=f"unknown escape {re.escape(chr(92) + escape[:1])}; .*xHH"):
        byte_codec.unescape(f"a\\{escape}")
