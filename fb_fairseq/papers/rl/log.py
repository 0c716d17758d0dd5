"""The training log, ``log.jsonl``: one JSON object per line, with the number of frames so far and the metrics."""

import json
import os

from fb_fairseq.errors import UserError
from fb_fairseq.files import atomic_write, open_text

LOG_FILE = "log.jsonl"
Curve = list[tuple[int, float]]  # (frames, value)


def append_entry(path: str, entry: dict) -> None:
    """Append an entry to the log."""
    with open(path, "a") as file:
        file.write(json.dumps(entry) + "\n")


def read_entries(path: str) -> list[dict]:
    """The entries of a log. An incomplete last line, from a run that was interrupted while writing, is skipped."""
    entries = []
    with open_text(path) as file:
        for number, line in enumerate(file, 1):
            if line.endswith("\n"):
                try:
                    entry = json.loads(line)
                    [value + 0.0 for value in entry.values()]  # all are numbers
                    entries.append({"frames": entry["frames"], **entry})
                except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError):
                    raise UserError(f"{path}: line {number} is damaged; remove it") from None
    return entries


def truncate_log(path: str, frames: int) -> None:
    """Drop the entries after ``frames``, where training resumes. Creates the log if there is none."""
    kept = [entry for entry in read_entries(path) if entry["frames"] <= frames] if os.path.exists(path) else []
    with atomic_write(path) as temporary, open(temporary, "w") as file:
        file.writelines(json.dumps(entry) + "\n" for entry in kept)


def read_curve(folder: str, metric: str) -> Curve:
    """A metric of the run in ``folder``, as (frames, value). Entries without the metric are skipped: there is no reward
    before the first episode has ended.
    """
    path = os.path.join(folder, LOG_FILE)
    if not os.path.isfile(path):
        raise UserError(f"{folder}: contains no {LOG_FILE}; give an --out folder of train")
    return [(entry["frames"], entry[metric]) for entry in read_entries(path) if metric in entry]


def training_seconds(folder: str) -> float:
    """How long the run in ``folder`` was trained, from the speeds in its log."""
    frames, seconds = 0, 0.0
    for entry in read_entries(os.path.join(folder, LOG_FILE)):
        seconds += (entry["frames"] - frames) / entry["fps"]
        frames = entry["frames"]
    return seconds
