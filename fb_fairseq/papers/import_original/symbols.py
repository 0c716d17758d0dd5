"""Match the vocabulary of an original checkpoint with a fairseq dictionary. The original programs save no
vocabulary. They number symbols in the order in which they build it; a file with the symbols in this order is given
with ``--dict``."""

from collections import Counter
from typing import NamedTuple

from fairseq.data import Dictionary

from fb_fairseq import byte_codec
from fb_fairseq.commands.preprocess_bytes import byte_dictionary
from fb_fairseq.errors import UserError
from fb_fairseq.files import open_text

# fairseq's special symbols, by their name in a vocabulary
SPECIAL = {"<eos>": "</s>", "</s>": "</s>", "<unk>": "<unk>", "<s>": "<s>", "<pad>": "<pad>"}


class Match(NamedTuple):
    """A fairseq dictionary for an original vocabulary."""

    dictionary: Dictionary  # the fairseq dictionary
    indices: list[int]  # index in it of each symbol of the vocabulary


def read_symbols(path: str) -> list[str]:
    """The symbols of a vocabulary: one per line, or one per line with its count, as in fairseq's ``dict.txt``."""
    try:
        with open_text(path) as file:
            lines = file.read().splitlines()
    except OSError as error:
        raise UserError(f"--dict {path}: {error.strerror}; give the vocabulary, one symbol per line") from None
    symbols = []
    for line in lines:
        symbol, _, count = line.rpartition(" ")
        symbols.append(symbol if symbol and count.isdigit() else line)
    repeated = sorted(symbol for symbol, times in Counter(symbols).items() if times > 1)
    if repeated:
        raise UserError(f"--dict {path}: contains {repeated[0]!r} more than once; give each symbol once")
    return symbols


def match_dictionary(path: str, vocabulary_size: int, as_bytes: bool) -> Match:
    """Match a vocabulary with a fairseq dictionary.

    - With ``as_bytes``, symbols are bytes (see ``byte_of``), and the dictionary is that of ``preprocess-bytes``.
    - A file with four symbols fewer than the checkpoint, and without special ones, is fairseq's own ``dict.txt``: the
      model was trained with fairseq's indices, and keeps them.
    - Otherwise the symbols are added to a new dictionary; ``<eos>`` becomes fairseq's ``</s>``.
    """
    symbols = read_symbols(path)
    if as_bytes:
        check_size(path, len(symbols), vocabulary_size)
        numbers = all(symbol.isdigit() for symbol in symbols if symbol not in SPECIAL)
        dictionary = byte_dictionary()
        return Match(dictionary, [dictionary.index(byte_of(path, symbol, numbers)) for symbol in symbols])
    dictionary = Dictionary()
    if len(symbols) + dictionary.nspecial == vocabulary_size and not set(symbols) & set(SPECIAL):
        for symbol in symbols:
            dictionary.add_symbol(symbol)
        return Match(dictionary, list(range(vocabulary_size)))
    check_size(path, len(symbols), vocabulary_size)
    return Match(dictionary, [dictionary.add_symbol(SPECIAL.get(symbol, symbol)) for symbol in symbols])


def check_size(path: str, found: int, expected: int) -> None:
    """Check that a vocabulary has as many symbols as the checkpoint."""
    if found != expected:
        raise UserError(
            f"--dict {path}: has {found} symbols, the checkpoint {expected}; give the vocabulary of its training, "
            "in the same order"
        )


def byte_of(path: str, symbol: str, numbers: bool) -> str:
    """The symbol of ``fb_fairseq.byte_codec`` for one of an original vocabulary: ``<eos>``, which stands for a newline,
    or a byte, as a number (as the programs prepare enwik8) or a character with ``_`` for a space (text8)."""
    if symbol == "<eos>":
        return byte_codec.SYMBOLS[ord("\n")]
    if numbers and symbol.isdigit() and int(symbol) < 256:
        return byte_codec.SYMBOLS[int(symbol)]
    if not numbers and len(symbol) == 1 and ord(symbol) < 128:
        return byte_codec.SYMBOLS[ord(" " if symbol == "_" else symbol)]
    raise UserError(f"--dict {path}: {symbol!r} is not a byte; omit --bytes")
