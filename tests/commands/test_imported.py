"""Dictionaries of imported models."""

import pytest

from fb_fairseq.commands.imported import as_dictionary, check_dictionary_file
from fb_fairseq.errors import UserError
from fb_fairseq.symbols import SPECIAL


@pytest.mark.parametrize("symbol", ["a\nb", "a\r", "\n"])
def test_symbols_that_a_dictionary_file_cannot_hold(tmp_path, symbol):
    """As a tokenizer of transformers may have them. Those that are special elsewhere are ordinary ones."""
    for symbols in (["a", "<eos>", "<0x0A>"], ["b"]):
        path = tmp_path / f"{symbols[0]}.txt"
        dictionary = as_dictionary([*SPECIAL, *symbols])
        dictionary.save(str(path))
        check_dictionary_file(dictionary, str(path))
    with pytest.raises(UserError, match="b.txt: is the dictionary of another model"):
        check_dictionary_file(as_dictionary([*SPECIAL, "c"]), str(path))
    with pytest.raises(UserError, match="dict.txt: cannot hold the symbol"):
        check_dictionary_file(as_dictionary([*SPECIAL, symbol]), str(tmp_path / "dict.txt"))
