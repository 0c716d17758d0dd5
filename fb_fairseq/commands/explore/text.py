"""Texts as tokens of a model, and tokens as text. In models of words, a line break is ``</s>``."""

import re
from collections.abc import Sequence
from typing import Any

from fb_fairseq import byte_codec
from fb_fairseq.errors import UserError

BOS, PAD, EOS, UNK = range(4)  # in every dictionary
NEVER_DRAWN = [BOS, PAD, UNK]  # in generating text
SYMBOL_OF_LINE_END = re.compile(" ?</s> ?")
LINE_BREAK, CONTINUES = "\u21b5", "\u00b7"  # the latter for the further bytes of a character
SIZES = (2, 3, 4)  # of characters with several bytes


class Vocabulary:
    """The symbols of a model's dictionary, in the order of their indices.

    Args:
        tokenizer: that of an exported model, which may split words into pieces; None: words are symbols.
        line_ends: whether the model of words was trained with ``</s>`` at line ends.

    Attributes:
        of_bytes: whether a symbol is a byte.
        unit: what a symbol is called.
    """

    def __init__(self, symbols: Sequence[str], tokenizer: Any | None = None, line_ends: bool = True):
        self.symbols, self._tokenizer, self._line_ends = list(symbols), tokenizer, line_ends
        self.of_bytes = self.symbols[UNK + 1 :] == byte_codec.SYMBOLS
        self.unit = "byte" if self.of_bytes else "token"
        self._indices = {symbol: index for index, symbol in enumerate(self.symbols)}

    def __len__(self) -> int:
        return len(self.symbols)

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, without the ``</s>`` that models read first. Unknown words become ``<unk>``."""
        if self.of_bytes:
            return [self._indices[symbol] for symbol in byte_codec.encode(text.encode("utf-8", "replace"))]
        text = text.replace("\n", f" {self.symbols[EOS]} " if self._line_ends else " ")
        if self._tokenizer is not None:
            return self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return [self._indices.get(word, UNK) for word in text.split()]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens. Bytes that are no UTF-8 are replaced."""
        symbols = [self.symbols[token] for token in tokens]
        if self.of_bytes:
            return byte_codec.decode(symbols).decode("utf-8", "replace")
        text = " ".join(symbols) if self._tokenizer is None else self._tokenizer.decode(list(tokens))
        return SYMBOL_OF_LINE_END.sub("\n", text)

    def label(self, token: int) -> str:
        """How a token is written in a picture."""
        symbol = self.symbols[token]
        if not self.of_bytes:
            return LINE_BREAK if token == EOS else symbol
        return LINE_BREAK if symbol == byte_codec.SYMBOLS[ord("\n")] else byte_codec.label(symbol)

    def character(self, tokens: Sequence[int]) -> str:
        """The printable character that several bytes form; empty if they do not."""
        data = byte_codec.decode(self.symbols[token] for token in tokens) if self.of_bytes else b""
        text = data.decode("utf-8", "ignore")
        is_one = len(text) == 1 and text.isprintable() and text.encode() == data and len(data) == len(tokens) > 1
        return text if is_one else ""

    def labels(self, tokens: Sequence[int]) -> list[str]:
        """How the tokens of a text are written in a picture: a character of several bytes stands at the first one."""
        labels = list(map(self.label, tokens))
        for i in range(len(tokens)):
            for size in SIZES:
                character = self.character(tokens[i : i + size])
                if character:
                    labels[i : i + size] = [character] + [CONTINUES] * (len(labels[i : i + size]) - 1)
                    break
        return labels

    def next_label(self, text: Sequence[int], token: int) -> str:
        """How a token that may follow a text is written: the character that it would complete."""
        ends = (self.character([*text[len(text) - size + 1 :], token]) for size in SIZES if len(text) >= size - 1)
        return next(filter(None, ends), "") or self.label(token)

    def ends_line(self, token: int) -> bool:
        """Whether a new line begins after a token."""
        return self.symbols[token] == byte_codec.SYMBOLS[ord("\n")] if self.of_bytes else token == EOS


def check_length(tokens: Sequence[int], most: int, unit: str) -> None:
    """Check that a text is not too long."""
    if len(tokens) > most:
        raise UserError(f"{len(tokens):,} {unit}s are too many: the page reads {most:,} at most (--max-steps)")
