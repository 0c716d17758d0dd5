"""How far a training is: a line for each of fairseq's log entries, and the seconds that training takes."""

import json
import os
import re
import sys
import time
from pathlib import Path

from fb_fairseq.files import atomic_write

TENTHS = 10
ENTRY = re.compile(r"\| train_inner \| (\{.*\})")


def duration(seconds: float) -> str:
    """As ``45 s``, ``12 min`` or ``3.5 h``."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


class Progress:
    """Turns fairseq's log entries into lines."""

    def __init__(self, target: int, clock=time.monotonic):
        self.target, self.clock = target, clock
        self.updates = 0
        self.first: tuple[int, float] | None = None  # updates and time of the first entry: a run may be resumed

    def line(self, text: str) -> str | None:
        """What to show after a line of the log; None if it holds no entry."""
        found = ENTRY.search(text)
        if not found:
            return None
        entry = json.loads(found[1])
        self.updates = updates = int(entry["num_updates"])
        if self.first is None:
            self.first = (updates, self.clock())
            left = ""
        else:
            done, elapsed = updates - self.first[0], self.clock() - self.first[1]
            left = f", {duration(elapsed / max(done, 1) * (self.target - updates))} left"
        speed = f", {float(entry['wps']):,.0f} tokens/s" if "wps" in entry else ""
        return f"update {updates:,} of {self.target:,}, loss {entry['loss']}{speed}{left}"


class Stopwatch:
    """Adds the time since its creation to the seconds in a file."""

    def __init__(self, path: str, clock=time.monotonic):
        self.path, self.clock = path, clock
        self.start = clock()
        if os.path.exists(path):
            self.start -= int(Path(path).read_text())

    def write(self) -> None:
        """Write the total."""
        with atomic_write(self.path) as temporary, open(temporary, "w", encoding="utf-8") as file:
            file.write(f"{self.clock() - self.start:.0f}\n")


class Display:
    """Shows the progress of a training on standard error: on a terminal in one line that is kept up to date, otherwise
    with a line for every tenth of the updates."""

    def __init__(self, target: int, prefix: str = "", terminal: bool = False):
        self.target, self.prefix, self.terminal = target, prefix, terminal
        self.progress = Progress(target)
        self._shown = -1

    def show(self, text: str) -> bool:
        """Show the progress after a line of the log. Returns whether the line is one of fairseq's log entries."""
        line = self.progress.line(text)
        if line is None:
            return False
        tenth = self.progress.updates * TENTHS // self.target
        if self.terminal:
            print(f"\r{line:79}", end="", file=sys.stderr, flush=True)
        elif tenth > self._shown:
            print(f"{self.prefix}{line}", file=sys.stderr, flush=True)
        self._shown = max(self._shown, tenth)
        return True

    def end(self) -> None:
        """End the line."""
        if self.terminal and self._shown >= 0:
            print(file=sys.stderr)
