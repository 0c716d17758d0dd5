"""Parameters of the same shapes that would mean something else are refused by name."""

import pytest

from fb_fairseq.errors import UserError
from fb_fairseq.meaning import OF_PARAMETERS, check_same_meaning
from fb_fairseq.symbols import never_drawn

REMEDY = "choose another"


@pytest.mark.parametrize("name", [*OF_PARAMETERS, "attention_span"])
def test_each_option(name):
    """``attention_span`` only where spans are learned as its fractions."""
    saved, given = {name: "old", "dropout": 0.1}, {name: "new", "dropout": 0.2, "adaptive_span": True}
    with pytest.raises(UserError, match=f"^a.pt: was trained with --{name.replace('_', '-')} old, not new: .*{REMEDY}"):
        check_same_meaning("a.pt", saved, given, REMEDY)
    for saved in ({name: "new"}, {}):
        check_same_meaning("a.pt", saved, given, REMEDY)
    check_same_meaning("a.pt", {"attention_span": 9}, {"attention_span": 5, "adaptive_span": False}, REMEDY)


def test_layers_that_are_left_out():
    """A composition may name a layer, whose number changes."""
    saved, given = {"memory_composition": "layer:3"}, {"memory_composition": "layer:1"}
    check_same_meaning("a.pt", saved, {**given, "decoder_layers": 2}, REMEDY)


def test_symbols_that_no_text_has():
    symbols = ["<s>", "<pad>", "</s>", "<unk>", "a", "madeupword0000", "madeupwords", "madeupword00001"]
    assert never_drawn(symbols) == [0, 1, 3, 5, 7]
