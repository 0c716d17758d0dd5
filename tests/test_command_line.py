"""Types of options: the largest values that their messages allow work, and those beyond do not."""

import argparse

import pytest

from fb_fairseq.command_line import seed, whole_number


@pytest.mark.parametrize(
    "kind,smallest,largest", [(whole_number, 1, 999_999_999), (seed, 0, 2**63 - 1)], ids=["whole number", "seed"]
)
def test_bounds(kind, smallest, largest):
    for value in (smallest, largest):
        assert kind(str(value)) == value
    for text in (str(smallest - 1), str(largest + 1), "1.0", "²", ""):
        with pytest.raises(argparse.ArgumentTypeError, match=f"^{text}: give a number"):
            kind(text)
