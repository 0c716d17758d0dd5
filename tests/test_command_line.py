"""Types of options: the largest values that their messages allow work, and those beyond do not."""

import argparse

import pytest

from fb_fairseq.command_line import CommandParser, seed, whole_number
from fb_fairseq.errors import DEBUG_VARIABLE, UserError


@pytest.mark.parametrize(
    "kind,smallest,largest", [(whole_number, 1, 999_999_999), (seed, 0, 2**63 - 1)], ids=["whole number", "seed"]
)
def test_bounds(kind, smallest, largest):
    for value in (smallest, largest):
        assert kind(str(value)) == value
    for text in (str(smallest - 1), str(largest + 1), "1.0", "²", ""):
        with pytest.raises(argparse.ArgumentTypeError, match=f"^{text}: give a number"):
            kind(text)


@pytest.mark.parametrize("debugging", [False, True])
def test_errors_of_commands(capsys, monkeypatch, debugging):
    """A user's mistake is one line, unless tracebacks are asked for; a fault of the program is never one."""
    monkeypatch.setenv(DEBUG_VARIABLE, "1" if debugging else "0")
    parser = CommandParser("score", description="A command.")
    with pytest.raises(UserError if debugging else SystemExit):
        with parser.one_line_errors():
            raise UserError("--gen x: no such file")
    lines = capsys.readouterr().err.splitlines()
    assert lines == ([] if debugging else ["fb-fairseq score: error: --gen x: no such file"])
    with pytest.raises(KeyError), parser.one_line_errors():
        raise KeyError("a fault")
