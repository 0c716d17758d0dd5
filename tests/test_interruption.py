"""Signals are remembered until a trainer asks for them; the second one, and any one within ``acting_at_once``, takes
effect immediately.
"""

import os
import signal
import threading

import pytest

from fb_fairseq.command_line import CommandParser
from fb_fairseq.interruption import SIGNALS, Interrupted, heeding_signals


def send(number=signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", SIGNALS)
def test_one_line(number, capsys):
    """It is the same for every trainer, and the status is that by which shells report the signal."""
    with pytest.raises(SystemExit) as stop, CommandParser("rl").one_line_errors():
        with heeding_signals() as interruption:
            interruption.end_if_requested(1, 5)
            send(number)
        interruption.end_if_requested(2, 5)
    assert stop.value.code == 128 + number
    line = "fb-fairseq rl: interrupted at update 2 of 5; run the same command again to resume\n"
    assert capsys.readouterr().err == line


def test_the_second_one_acts_at_once():
    with pytest.raises(Interrupted, match="again, before all was saved; .* from the last checkpoint") as stop:
        with heeding_signals() as interruption:
            send(signal.SIGINT)
            send()
    assert stop.value.status == 128 + signal.SIGTERM and interruption.requested == signal.SIGINT


def test_work_that_can_be_repeated():
    """It is cut short, or not begun."""
    with heeding_signals() as interruption:
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt), interruption.acting_at_once():
                send()
        assert interruption.requested == signal.SIGTERM


def test_other_handlers():
    """They are put back; a signal that is ignored stays so."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    of_kill = signal.getsignal(signal.SIGTERM)
    try:
        with heeding_signals() as interruption:
            send(signal.SIGINT)
            assert not interruption.requested and signal.getsignal(signal.SIGTERM) == interruption.handle
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) == of_kill
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_change_nothing():
    of_kill = signal.getsignal(signal.SIGTERM)
    found = []

    def elsewhere():
        with heeding_signals():
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join(60)
    assert found == [of_kill]


def test_handlers_that_python_cannot_put_back(monkeypatch):
    """Those that were not set from Python stay."""
    monkeypatch.setattr(signal, "getsignal", lambda number: None)
    monkeypatch.delattr(signal, "signal")
    with heeding_signals() as interruption:
        assert not interruption.requested
