"""Errors of commands: a line for what is known, a traceback for faults of the program and for who looks for them."""

import pytest

from fb_fairseq.errors import DEBUG_VARIABLE, STATUS, UserError, fail
from fb_fairseq.printing import progress


@pytest.mark.parametrize("error", [UserError("a: b"), FileNotFoundError(2, "no such file", "a")])
def test_known_errors_are_a_line(error, capsys, monkeypatch):
    monkeypatch.delenv(DEBUG_VARIABLE, raising=False)
    assert fail("plot", error) == STATUS
    assert capsys.readouterr().err.startswith("fb-fairseq plot: error: a: ")
    monkeypatch.setenv(DEBUG_VARIABLE, "1")
    with pytest.raises(type(error)):
        fail("plot", error)


def test_others_are_raised(capsys):
    with pytest.raises(ZeroDivisionError):
        fail("plot", ZeroDivisionError())
    assert capsys.readouterr().err == ""


def test_progress_is_shown_in_terminals_alone(capsys):
    assert list(progress([1, 2], "reading")) == [1, 2]
    assert capsys.readouterr().err == ""
