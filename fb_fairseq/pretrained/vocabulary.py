"""The symbols of a model: text as tokens, and tokens as text, or as figures and the explorer's page show them."""

import codecs
import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

from fb_fairseq import byte_codec
from fb_fairseq.errors import UserError
from fb_fairseq.symbols import EOS, SPECIAL, UNK, never_drawn

SYMBOL_OF_LINE_END = re.compile(" ?</s> ?")
LINE_BREAK, CONTINUES = "\u21b5", "\u00b7"  # the latter for the further bytes of a character
MOST_BYTES = 4  # of a character


class Vocabulary:
    """The symbols of a model's dictionary, in the order of their indices.

    Args:
        symbols: the symbols, fairseq's special ones first.
        pieces_of: the folder of an exported model whose tokenizer splits words into pieces; None: words are symbols.
        line_ends: whether a model of words was trained with ``</s>`` at line ends.

    Attributes:
        of_bytes: whether a symbol is a byte.
        unit: what a symbol is called.
        never_drawn: the tokens that are not generated.
    """

    def __init__(self, symbols: Sequence[str], pieces_of: str | None = None, line_ends: bool = True):
        self.symbols = list(symbols)
        self.of_bytes = self.symbols[UNK + 1 :] == byte_codec.SYMBOLS
        self.unit = "byte" if self.of_bytes else "token"
        self.never_drawn = never_drawn(self.symbols)
        self._pieces_of = pieces_of
        self._line_end = f" {self.symbols[EOS]} " if line_ends else " "
        self._indices = {symbol: index for index, symbol in enumerate(self.symbols)}

    def __len__(self) -> int:
        return len(self.symbols)

    @cached_property
    def _tokenizer(self) -> Any | None:
        if self._pieces_of is None:
            return None
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(os.path.join(self._pieces_of, "tokenizer.json"))
        tokenizer.encode_special_tokens = True  # in a text they are no symbols
        return tokenizer

    def encode(self, text: str | bytes) -> list[int]:
        """The tokens of a text, without the ``</s>`` that models read first. Unknown words become ``<unk>``."""
        data = text.encode("utf-8", "replace") if isinstance(text, str) else text
        if self.of_bytes:
            return [self._indices[symbol] for symbol in byte_codec.encode(data)]
        text = data.decode("utf-8", "replace").replace("\n", self._line_end)
        if self._tokenizer is not None:
            return self._tokenizer.encode(text, add_special_tokens=False).ids
        return [self._indices.get(word, UNK) for word in text.split()]

    def encode_prompt(self, prompt: str) -> list[int]:
        """The tokens of ``--prompt``, whose words are symbols; of a model of bytes, it may have escapes."""
        if self.of_bytes:
            try:
                return self.encode(byte_codec.unescape(prompt))
            except ValueError as error:
                raise UserError(f"--prompt: {error}") from None
        words = prompt.split()
        for word in words:
            if word not in self._indices:
                raise UserError(
                    f"--prompt: {word!r} is not in the dictionary; tokenise the text like the training text, and write "
                    f"{SPECIAL[UNK]} for an unknown word"
                )
        return [self._indices[word] for word in words]

    def decoder(self) -> Callable[[int], str]:
        """A function that gives each token's text as it is generated. The bytes of a character come with its last one.
        Behind a symbol that is no byte, also a piece of a word, is a space; ``</s>`` is the end of a line.
        """
        if not self.of_bytes:
            return lambda token: "\n" if token == EOS else self.symbols[token] + " "
        characters = codecs.getincrementaldecoder("utf-8")("replace")
        return lambda token: characters.decode(byte_codec.decode([self.symbols[token]]))

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens. Bytes that are no UTF-8 are replaced. Unlike that of ``decoder``, it has whole words
        instead of their pieces, and no space at its end.
        """
        symbols = [self.symbols[token] for token in tokens]
        if self.of_bytes:
            return byte_codec.decode(symbols).decode("utf-8", "replace")
        text = (
            " ".join(symbols)
            if self._tokenizer is None
            else self._tokenizer.decode(list(tokens), skip_special_tokens=False)
        )
        return SYMBOL_OF_LINE_END.sub("\n", text)

    def label(self, token: int) -> str:
        """A token as figures show it: bytes escaped as in prompts, but a space and the end of a line are visible."""
        if self.ends_line(token):
            return LINE_BREAK
        return byte_codec.label(self.symbols[token]) if self.of_bytes else self.symbols[token]

    def labels(self, tokens: Sequence[int]) -> list[str]:
        """The tokens of a text as figures show them, ``</s>`` first: a character of several bytes stands at its first
        one.
        """
        labels = ["</s>"]
        for label, size in self._characters(tokens[1:]):
            labels += [label] + [CONTINUES] * (size - 1)
        return labels

    def next_label(self, text: Sequence[int], token: int) -> str:
        """A token that may follow a text, as figures show it: the character that it would complete."""
        if token == EOS:
            return "</s>"
        *_, last = self._characters([*text[1:][1 - MOST_BYTES :], token])
        return last[0]

    def ends_line(self, token: int) -> bool:
        """Whether a new line begins after a token."""
        return self.symbols[token] == byte_codec.SYMBOLS[ord("\n")] if self.of_bytes else token == EOS

    def _characters(self, tokens: Sequence[int]) -> Iterator[tuple[str, int]]:
        """The label of each character, or byte or word, and its number of tokens."""
        if not self.of_bytes:
            yield from ((self.label(token), 1) for token in tokens)
            return
        data = byte_codec.decode(self.symbols[token] for token in tokens)
        for character in data.decode("utf-8", "surrogateescape"):
            of_character = character.encode("utf-8", "surrogateescape")
            if len(of_character) > 1 and character.isprintable():
                yield character, len(of_character)
            else:
                yield from ((self.label(self._indices[symbol]), 1) for symbol in byte_codec.encode(of_character))
