"""Match the vocabulary of an original checkpoint with a fairseq dictionary.

The original programs save no vocabulary. They number symbols in the order in which they build it; a file with the
symbols in this order is given with ``--dict``.
"""

from collections import Counter

from fb_fairseq import byte_codec
from fb_fairseq.errors import UserError
from fb_fairseq.files import open_text
from fb_fairseq.symbols import SPECIAL

# fairseq's special symbols, by their name in a vocabulary
NAMES = {"<eos>": "</s>", "</s>": "</s>", "<unk>": "<unk>", "<s>": "<s>", "<pad>": "<pad>"}


def read_symbols(path: str) -> list[str]:
    """The symbols of a vocabulary: one per line, or one per line with its count, as in fairseq's ``dict.txt``."""
    with open_text(path) as file:
        lines = file.read().splitlines()
    symbols = []
    for line in lines:
        symbol, _, count = line.rpartition(" ")
        symbols.append(symbol if symbol and count.isdigit() else line)
    repeated = sorted(symbol for symbol, times in Counter(symbols).items() if times > 1)
    if repeated:
        raise UserError(f"--dict {path}: contains {repeated[0]!r} more than once; give each symbol once")
    return symbols


def match_dictionary(path: str, vocabulary_size: int, as_bytes: bool) -> tuple[list[str], list[int]]:
    """The symbols of the fairseq dictionary for a vocabulary, and the index in it of each of the checkpoint's symbols.

    - With ``as_bytes``, symbols are bytes (see ``byte_of``), and the dictionary is that of ``preprocess-bytes``.
    - A file with four symbols fewer than the checkpoint, and without special ones, is fairseq's own ``dict.txt``: the
      model was trained with fairseq's indices, and keeps them.
    - Otherwise the symbols are added to a new dictionary; ``<eos>`` becomes fairseq's ``</s>``.

    Args:
        path: the vocabulary.
        vocabulary_size: number of symbols of the checkpoint.
        as_bytes: whether symbols are bytes.
    """
    symbols = read_symbols(path)
    if not as_bytes and NAMES.keys().isdisjoint(symbols) and len(SPECIAL) + len(symbols) == vocabulary_size:
        return [*SPECIAL, *symbols], list(range(vocabulary_size))
    if len(symbols) != vocabulary_size:
        raise UserError(
            f"--dict {path}: has {len(symbols)} symbols, the checkpoint {vocabulary_size}; give the vocabulary of its "
            "training, in the same order"
        )
    if as_bytes:
        numbers = all(is_number(symbol) for symbol in symbols if symbol not in NAMES)
        own = [byte_of(path, symbol, numbers) for symbol in symbols]
        known = [*SPECIAL, *byte_codec.SYMBOLS]
    else:
        own = [NAMES.get(symbol, symbol) for symbol in symbols]
        known = list(dict.fromkeys([*SPECIAL, *own]))
    if len(set(own)) < len(own):
        twice, _ = Counter(own).most_common(1)[0]
        alike = ", ".join(symbol for symbol, name in zip(symbols, own) if name == twice)
        raise UserError(f"--dict {path}: {alike} are one symbol of fairseq, {twice}; give one of them another name")
    indices = {symbol: index for index, symbol in enumerate(known)}
    return known, [indices[symbol] for symbol in own]


def byte_of(path: str, symbol: str, numbers: bool) -> str:
    """The symbol of ``fb_fairseq.byte_codec`` for one of an original vocabulary: ``<eos>``, which stands for a newline,
    or a byte, as a number (as the programs prepare enwik8) or a character with ``_`` for a space (text8).

    Args:
        path: the vocabulary, for messages.
        symbol: one of its symbols.
        numbers: whether its bytes are numbers; else characters.
    """
    if symbol == "<eos>":
        return byte_codec.SYMBOLS[ord("\n")]
    if numbers and is_number(symbol) and int(symbol) < 256:
        return byte_codec.SYMBOLS[int(symbol)]
    if not numbers and len(symbol) == 1 and ord(symbol) < 128:
        return byte_codec.SYMBOLS[ord(" " if symbol == "_" else symbol)]
    raise UserError(f"--dict {path}: {symbol!r} is not a byte; omit --bytes")


def is_number(symbol: str) -> bool:
    """Whether a symbol consists of decimal digits."""
    return symbol.isascii() and symbol.isdecimal()
