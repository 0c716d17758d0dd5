"""Lines that say how far a call is: for each step its number, what it does, and how long it has taken; while a long
one runs, the last line of its log.
"""

import os
import re
import time
from collections.abc import Sequence

EVERY = 60  # seconds between two lines about a step that runs
WIDTH = 90  # of what is said of a log
TAIL = 4096  # bytes at the end of a log in which its last line is looked for
ENTRY = re.compile(r'"loss": "([^"]*)".*"num_updates": "(\d+)"')  # fairseq's, in JSON


def duration(seconds: float) -> str:
    """A time in words, such as ``45 s``, ``12 min`` or ``3.5 h``."""
    if round(seconds) < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if round(seconds / 60) < 60 else f"{seconds / 3600:.1f} h"


def last_line(log: str, start: int, training: bool = False) -> str:
    """The last line of a log; of fairseq's entries, updates and loss.

    Args:
        log: its file.
        start: where the log begins in it, in bytes.
        training: whether the last entry counts, whatever follows it.
    """
    with open(log, "rb") as file:
        file.seek(max(start, os.path.getsize(log) - TAIL))
        text = file.read().decode(errors="replace").strip()
    last = re.split(r"[\r\n]+", text)[-1]
    found = ENTRY.findall(text if training else last)
    return f"update {int(found[-1][1]):,}, loss {found[-1][0]}" if found else last


class Progress:
    """Says how far steps are. ``steps``: what each of them does."""

    def __init__(self, steps: Sequence[str]):
        self.steps, self.started, self.told = steps, {}, {}

    def say(self, place: int, text: str) -> None:
        """Print a line about a step."""
        print(f"[{place + 1}/{len(self.steps)}] {self.steps[place]}{text}", flush=True)

    def start(self, place: int) -> None:
        """A step begins."""
        self.started[place] = self.told[place] = time.monotonic()
        self.say(place, " …")

    def tell(self, place: int, log: str, start: int) -> None:
        """A step is running; its lines in the log begin there."""
        now = time.monotonic()
        if now - self.told[place] >= EVERY:
            self.told[place] = now
            self.say(place, f", {duration(now - self.started[place])}: {last_line(log, start, training=True)}"[:WIDTH])

    def end(self, place: int, result: str = "") -> None:
        """A step has ended."""
        spent = duration(time.monotonic() - self.started[place]) if place in self.started else "done already"
        self.say(place, f": {result or spent}")
