"""The vocabulary of a published program's checkpoint, and where its symbols stand in a fairseq dictionary."""

import os
from typing import List, Tuple

from fb_fairseq import byte_codec
from fb_fairseq.errors import UserError

SPECIAL = {"<eos>": "</s>", "</s>": "</s>", "<unk>": "<unk>", "<s>": "<s>", "<pad>": "<pad>"}


def read_symbols(path: str) -> List[str]:
    """One symbol a line, as the program numbers them; or fairseq's ``symbol count``.

    Raises:
        UserError: the file cannot be read, or a symbol stands there twice.
    """
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is no UTF-8 text"
        raise UserError(f"--dict {path}: {reason}; give the vocabulary's symbols, one a line") from None
    symbols = []
    for line in lines:
        symbol, _, count = line.rpartition(" ")
        symbols.append(symbol if symbol and count.isdigit() else line)
    twice = {symbol for symbol in symbols if symbols.count(symbol) > 1} if len(set(symbols)) < len(symbols) else set()
    if twice:
        raise UserError(f"--dict {path}: {sorted(twice)[0]!r} stands there twice; give each symbol once")
    return symbols


def match_dictionary(path: str, vocabulary: int, as_bytes: bool) -> Tuple[object, List[int]]:
    """The fairseq dictionary, and where each symbol of the vocabulary stands in it.

    Args:
        vocabulary: how many symbols the checkpoint knows.
        as_bytes: symbols are bytes, see ``byte_of``; the dictionary is that of ``fb_fairseq.commands.preprocess_bytes``.

    Raises:
        UserError: the numbers do not match.
    """
    from fairseq.data import Dictionary

    from fb_fairseq.commands.preprocess_bytes import byte_dictionary

    symbols = read_symbols(path)
    if as_bytes:
        check_number(path, len(symbols), vocabulary)
        numbers = all(symbol.isdigit() for symbol in symbols if symbol not in SPECIAL)
        dictionary = byte_dictionary()
        return dictionary, [dictionary.index(byte_of(path, symbol, numbers)) for symbol in symbols]
    dictionary = Dictionary()
    if len(symbols) + dictionary.nspecial == vocabulary and not set(symbols) & set(SPECIAL):
        for symbol in symbols:  # a model that was trained with fairseq's numbers
            dictionary.add_symbol(symbol)
        return dictionary, list(range(vocabulary))
    check_number(path, len(symbols), vocabulary)
    return dictionary, [dictionary.add_symbol(SPECIAL.get(symbol, symbol)) for symbol in symbols]


def check_number(path: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise UserError(
            f"--dict {path}: has {found} symbols, the checkpoint {wanted}; give those that it was trained with, in its order"
        )


def byte_of(path: str, symbol: str, numbers: bool) -> str:
    """The byte codec's symbol for one of the program's: ``<eos>`` is a newline, ``_`` a blank; bytes are numbers (as
    the programs read enwik8) or characters (text8)."""
    if symbol == "<eos>":
        return byte_codec.SYMBOLS[ord("\n")]
    if numbers and symbol.isdigit() and int(symbol) < 256:
        return byte_codec.SYMBOLS[int(symbol)]
    if not numbers and len(symbol) == 1 and ord(symbol) < 128:
        return byte_codec.SYMBOLS[ord(" " if symbol == "_" else symbol)]
    raise UserError(f"--dict {path}: {symbol!r} is no byte; leave --bytes out")


def write_dictionary(dictionary, folder: str) -> str:
    """Write ``dict.txt`` to a folder, where data can be prepared with it (``fairseq-preprocess --srcdict``).

    Raises:
        UserError: another one lies there.
    """
    path = os.path.join(folder, "dict.txt")
    own = "".join(
        f"{symbol} {count}\n" for symbol, count in zip(dictionary.symbols, dictionary.count) if symbol not in SPECIAL
    )
    if os.path.exists(path):
        with open(path, encoding="utf-8", errors="replace") as file:
            there = [line.rpartition(" ")[0] or line.strip() for line in file]
        if there != dictionary.symbols[dictionary.nspecial :]:
            raise UserError(f"{path}: another dictionary lies there; give an --out in another folder")
        return path
    with open(path, "w", encoding="utf-8") as file:
        file.write(own)
    return path
