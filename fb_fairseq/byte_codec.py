"""Text as bytes: 256 symbols, of which newline is one. ``</s>`` stands only where a document ends.

(fairseq's ``--bpe bytes`` folds white space, and its dictionaries read a newline as ``</s>``.) Printable ASCII stands
for itself, other bytes are written ``<0x0A>``. In a prompt that is typed on one line, ``\\n``, ``\\t``, ``\\\\`` and
``\\xHH`` stand for the bytes that cannot be typed.
"""

import re
from typing import Iterable, List

SYMBOLS = [chr(b) if 33 <= b < 127 else f"<0x{b:02X}>" for b in range(256)]
_BYTES = {symbol: byte for byte, symbol in enumerate(SYMBOLS)}
_ESCAPES = {"n": b"\n", "t": b"\t", "\\": b"\\"}


def encode(data: bytes) -> List[str]:
    """The symbols of these bytes."""
    return [SYMBOLS[byte] for byte in data]


def decode(symbols: Iterable[str]) -> bytes:
    """The bytes of these symbols; ``</s>`` and fairseq's other special symbols stand for no byte."""
    return bytes(_BYTES[symbol] for symbol in symbols if symbol in _BYTES)


def unescape(line: str) -> bytes:
    """The bytes of a typed prompt.

    Raises:
        ValueError: a backslash is followed by something else than n, t, a backslash, or x and two hex digits.
    """

    def byte(match):
        escape = match.group(1).decode("utf-8", "replace")
        if escape in _ESCAPES:
            return _ESCAPES[escape]
        if escape.startswith("x") and len(escape) == 3:
            return bytes([int(escape[1:], 16)])
        raise ValueError(f"prompt: unknown escape \\{escape}; write \\n, \\t, \\\\ or \\xHH")

    return re.sub(rb"\\(x[0-9A-Fa-f]{2}|.|$)", byte, line.encode("utf-8", "surrogateescape"))


def escape(data: bytes) -> str:
    """The inverse of ``unescape``, on one line: what is no printable UTF-8 becomes an escape."""

    def shown(character):
        if character == "\\":
            return "\\\\"
        if character.isprintable():
            return character
        named = {"\n": "\\n", "\t": "\\t"}.get(character)
        return named or "".join(f"\\x{byte:02X}" for byte in character.encode("utf-8", "surrogateescape"))

    return "".join(map(shown, data.decode("utf-8", "surrogateescape")))


def is_byte_dictionary(dictionary) -> bool:
    """Whether a fairseq dictionary is this codec's, so that bits per byte can be told."""
    return list(dictionary.symbols[dictionary.nspecial :]) == SYMBOLS
