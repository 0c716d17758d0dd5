"""Text as a sequence of bytes. Each of the 256 bytes has its own symbol, newline included.

The symbol of a printable ASCII character is the character; the symbol of another byte is its hexadecimal code, such as
``<0x0A>``. ``</s>`` occurs only at the end of a document. (fairseq's ``--bpe bytes`` is not lossless: it merges white
space, and newlines become ``</s>``.)

Prompts are typed on one line, and bytes that cannot be typed are written as ``\\n``, ``\\t``, ``\\\\`` (a backslash) or
``\\xHH``.
"""

import re
from collections.abc import Iterable

SYMBOLS = [chr(b) if 33 <= b < 127 else f"<0x{b:02X}>" for b in range(256)]
# Tokens of an item of fairseq's indexed dataset: a longer document is stored as several. Small ones, because fairseq
# converts a whole item to read a part of it.
ITEM_TOKENS = 4096
_BYTES = {symbol: byte for byte, symbol in enumerate(SYMBOLS)}
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\"}


def encode(data: bytes) -> list[str]:
    """The symbol of each byte."""
    return [SYMBOLS[byte] for byte in data]


def decode(symbols: Iterable[str]) -> bytes:
    """The bytes that the symbols stand for. fairseq's special symbols, such as ``</s>``, are skipped."""
    return bytes(_BYTES[symbol] for symbol in symbols if symbol in _BYTES)


def unescape(line: str) -> bytes:
    """The bytes of a typed prompt, whose escapes are replaced by what they stand for.

    Raises:
        ValueError: a backslash is not followed by n, t, another backslash, or x and two hexadecimal digits.
    """

    def unescape_match(match):
        escape = match[1]
        if escape in _ESCAPES:
            return _ESCAPES[escape]
        if escape.startswith("x") and len(escape) == 3:
            return bytes([int(escape[1:], 16)]).decode("utf-8", "surrogateescape")
        raise ValueError(f"unknown escape \\{escape}; write \\n, \\t, \\\\ or \\xHH")

    text = re.sub(r"(?s)\\(x[0-9A-Fa-f]{2}|.|$)", unescape_match, line)
    return text.encode("utf-8", "surrogateescape")


def escape(data: bytes) -> str:
    """The inverse of ``unescape``: one line, in which everything that is not printable UTF-8 is escaped."""

    def escape_character(character):
        if character == "\\":
            return "\\\\"
        if character.isprintable():
            return character
        short = {"\n": "\\n", "\t": "\\t"}.get(character)
        return short or "".join(f"\\x{byte:02X}" for byte in character.encode("utf-8", "surrogateescape"))

    return "".join(map(escape_character, data.decode("utf-8", "surrogateescape")))


def label(symbol: str) -> str:
    """A symbol as figures show it: escaped as in prompts, but a space is visible. ``</s>`` stays as it is."""
    return "\u2423" if symbol == SYMBOLS[ord(" ")] else escape(decode([symbol])) or symbol


def is_byte_dictionary(dictionary) -> bool:
    """Whether a fairseq dictionary consists of this codec's symbols, so that a token is a byte."""
    return list(dictionary.symbols[dictionary.nspecial :]) == SYMBOLS
