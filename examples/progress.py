"""Show how far a training run is:

    fairseq-train … --log-format json 2>&1 | python progress.py LOG UPDATES [SECONDS]

Everything that it reads is appended to LOG. On a terminal one line is kept up to date; otherwise a line is printed for
every tenth of UPDATES. The seconds that pass are added to the file SECONDS, at every log entry: a run that is killed
leaves them, too.
"""

import json
import os
import re
import signal
import sys
import time
from typing import Optional

from fb_fairseq.files import atomic_write

TENTHS = 10
ENTRY = re.compile(r"\| train_inner \| (\{.*\})")


def duration(seconds: float) -> str:
    """As ``45 s``, ``12 min`` or ``3.5 h``."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


class Progress:
    """Turns fairseq's log entries into lines.

    Args:
        target: number of updates at the end.
        clock: the time in seconds.
    """

    def __init__(self, target: int, clock=time.monotonic):
        self.target = target
        self.clock = clock
        self.start, self.first = clock(), None

    def line(self, text: str) -> Optional[str]:
        """What to show after a line of the log; None if it holds no entry."""
        found = ENTRY.search(text)
        if not found:
            return None
        entry = json.loads(found[1])
        updates = int(entry["num_updates"])
        if self.first is None:  # the run may have been resumed
            self.first = (updates, self.clock())
            left = ""
        else:
            done, elapsed = updates - self.first[0], self.clock() - self.first[1]
            left = f", {duration(elapsed / max(done, 1) * (self.target - updates))} left"
        speed = f", {float(entry['wps']):,.0f} tokens/s" if "wps" in entry else ""
        return f"update {updates:,} of {self.target:,}, loss {entry['loss']}{speed}{left}"


class Stopwatch:
    """Adds the time since its creation to the seconds in a file.

    Args:
        path: of the file; if empty, nothing is written.
        clock: the time in seconds.
    """

    def __init__(self, path: str, clock=time.monotonic):
        self.path = path
        self.clock = clock
        self.start = clock()
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                self.start -= int(file.read())

    def write(self) -> None:
        """Write the total."""
        if self.path:
            with atomic_write(self.path) as temporary, open(temporary, "w", encoding="utf-8") as file:
                file.write(f"{self.clock() - self.start:.0f}\n")


def main() -> None:
    """Read standard input until it ends."""
    path, target = sys.argv[1], int(sys.argv[2])
    stopwatch = Stopwatch(sys.argv[3] if len(sys.argv) > 3 else "")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # fairseq-train ends, and then the input
    progress, terminal, shown = Progress(target), sys.stderr.isatty(), -1
    with open(path, "a", encoding="utf-8", errors="replace") as log:
        for text in sys.stdin:
            log.write(text)
            log.flush()
            line = progress.line(text)
            if line is None:
                continue
            stopwatch.write()
            tenth = int(re.search(r"update ([\d,]+)", line)[1].replace(",", "")) * TENTHS // target
            if terminal or tenth > shown:
                print(f"\r{line:79}" if terminal else line, end="" if terminal else "\n", file=sys.stderr, flush=True)
                shown = tenth
    stopwatch.write()
    if terminal and shown >= 0:
        print(file=sys.stderr)


if __name__ == "__main__":
    main()
