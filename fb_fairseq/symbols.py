"""The symbols of fairseq's dictionaries that are no words of a text: special ones, and padding."""

import re
from collections.abc import Sequence

BOS, PAD, EOS, UNK = range(4)  # fairseq's special symbols, by index
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
END_OF_WORD = "</w>"  # at the end of a piece that ends a word, in subword-nmt's codes
SEPARATOR = "@@"  # at the end of one that does not, in a text
# The words with which fairseq-preprocess pads a dictionary (--padding-factor). No text has them.
PADDING_WORD = re.compile(r"madeupword\d{4,}")


def words_of(symbols: Sequence[str]) -> list[str]:
    """The symbols of a dictionary, without special ones and padding. ``symbols``: in the order of the tokens."""
    return [symbol for symbol in symbols[len(SPECIAL) :] if not PADDING_WORD.fullmatch(symbol)]


def padding_words(symbols: Sequence[str]) -> list[int]:
    """The tokens of a dictionary's padding, which are never generated. ``symbols``: in the order of the tokens."""
    return [token for token, symbol in enumerate(symbols) if PADDING_WORD.fullmatch(symbol)]


def never_drawn(symbols: Sequence[str]) -> list[int]:
    """The tokens that a language model never generates: ``<s>``, ``<pad>``, ``<unk>``, and ``padding_words``."""
    return [BOS, PAD, UNK, *padding_words(symbols)]
