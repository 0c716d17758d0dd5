"""Dictionaries of imported models."""

import pytest
from fairseq.data import Dictionary

from fb_fairseq.commands.imported import write_dictionary
from fb_fairseq.errors import UserError


def test_a_dictionary_file_has_all_symbols(tmp_path):
    """Also those that are special elsewhere, but not to fairseq."""
    dictionary = Dictionary()
    for symbol in ("a", "<eos>", "<0x0A>"):
        dictionary.add_symbol(symbol, n=2)
    for _ in range(2):  # the second time, it is there already
        write_dictionary(dictionary, str(tmp_path / "dict.txt"))
    read = Dictionary.load(str(tmp_path / "dict.txt"))
    assert read.symbols == dictionary.symbols and read.count[read.nspecial :] == [2, 2, 2]


@pytest.mark.parametrize("symbol", ["a\nb", "a\r", "\n"])
def test_symbols_that_a_dictionary_file_cannot_hold(tmp_path, symbol):
    """As a tokenizer of transformers may have them."""
    dictionary = Dictionary()
    dictionary.add_symbol(symbol)
    with pytest.raises(UserError, match="dict.txt: cannot hold the symbol"):
        write_dictionary(dictionary, str(tmp_path / "dict.txt"))
    assert not list(tmp_path.iterdir())
