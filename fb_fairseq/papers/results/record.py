"""The record of a recipe's steps, OUT/.fb_fairseq-recipe, which also marks the output folder as a recipe's."""

import json
import os
from typing import TypedDict

from fb_fairseq.errors import UserError
from fb_fairseq.files import atomic_write

MARK = ".fb_fairseq-recipe"
HERE = "OUT"  # stands for the output folder, which may be moved


class Entry(TypedDict, total=False):
    """A step in the record. Its name is the first file that it writes. There and in the paths below, ``HERE`` stands
    for the output folder.

    Attributes:
        command: its words.
        reads: the user's files, each with its size and checksum.
        writes: its files, and folders.
        processes: of the training.
        settings: of a training, see ``fb_fairseq.papers.results.settings``.
        hardware: that it has run on.
        seconds: that it has taken, in all calls.
        commit: of this package; of an installed one, its version.
        done: a number that grows from step to step; 0 or missing: it is not done.
    """

    command: list[str]
    reads: dict[str, str]
    writes: list[str]
    processes: int
    settings: dict[str, str]
    seconds: float
    hardware: str
    commit: str
    done: int


class Record(TypedDict):
    """The content of the file."""

    recipe: str
    steps: dict[str, Entry]


def read_record(out: str) -> Record | None:
    """The record of a folder; None if it has none."""
    path = os.path.join(out, MARK)
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        return Record(recipe=found["recipe"], steps=dict(found["steps"]))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError):
        raise UserError(f"{path}: is damaged; give another --out") from None


def write_record(out: str, record: Record) -> None:
    """Write the record of a folder."""
    with atomic_write(os.path.join(out, MARK)) as temporary, open(temporary, "w", encoding="utf-8") as file:
        json.dump(record, file, indent=1)
