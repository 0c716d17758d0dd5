"""What was run in the output folder of a recipe, OUT/.fb_fairseq-recipe, which also marks the folder as a recipe's. And
the settings of a training, all that its result depends on: the options of its command, and of the commands that have
made the data and checkpoints it starts from.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypedDict

from fb_fairseq.errors import UserError
from fb_fairseq.files import atomic_write

MARK = ".fb_fairseq-recipe"
HERE = "OUT"  # stands for the output folder, which may be moved
OPTION = re.compile(r"--[A-Za-z]")
# Options on which no result depends but by rounding. A training whose time was up may get more.
IRRELEVANT = re.compile(
    r"seed|cpu|device|user_dir|ddp_backend|(distributed|log|step_loop)_.*|(num_)?workers|step_loop"
    r"|checkpoint_activations|stop_time_hours|tensorboard_logdir|minutes|overwrite"
)
TRAIN = "fairseq-train"
PER_PROCESS = ("batch_size", "max_tokens")


class Entry(TypedDict, total=False):
    """A step in the record. Its name is the first file that it writes, relative to the folder.

    Attributes:
        reads: the user's files, each with its size and checksum.
        processes: of the training.
        settings: of a training, see ``settings_of``.
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


def options_of(command: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The options of a command, by their names with underscores, and what has none, by an empty name."""
    name = ""
    for word in command:
        if OPTION.match(word):
            if name:
                yield name, ""
            name, equals, value = word[2:].partition("=")
            name = name.replace("-", "_")
            if equals:
                yield name, value
                name = ""
        else:
            yield name, word
            name = ""
    if name:
        yield name, ""


def settings_of(name: str, steps: Mapping[str, Entry]) -> dict[str, str]:
    """All that the result of a step depends on, but its seed. The last one counts of options that are given twice; a
    batch is that of all processes, and words before fairseq-train, which launch it, do not count. Settings of what a
    model starts from have the option before their names, as in ``finetune_from_model lr``; those of data have it if
    there is another of their name.
    """
    entry = steps[name]
    found = {f"data {os.path.basename(path)}": content for path, content in entry["reads"].items()}
    origins = {}
    command = entry["command"]
    for option, value in options_of(command[command.index(TRAIN) if TRAIN in command else 0 :]):
        if value.startswith(f"{HERE}/"):
            origins[value] = option
        elif option and not IRRELEVANT.fullmatch(option):
            found[option] = value
    parts = found.pop("update_freq", "1")
    for option in PER_PROCESS:
        if parts.isdecimal() and found.get(option, "").isdecimal():
            found[option] = str(int(found[option]) * int(parts) * entry.get("processes", 1))
    for path, option in origins.items():
        others = list(makers(path, steps))
        for other in others if name not in others else ():
            for key, value in settings_of(other, steps).items():
                known = not path.endswith(".pt") and found.get(key, value) == value
                found.setdefault(key if known else f"{option} {key}", value)
    return dict(sorted(found.items()))


def makers(path: str, steps: Mapping[str, Entry]) -> Iterator[str]:
    """The steps that write a file, or files in a folder or with this beginning, as fairseq-preprocess is given them."""
    for name, entry in steps.items():
        if any(f"{written}/".startswith((f"{path}/", f"{path}.")) for written in entry["writes"]):
            yield name


def trainings(name: str, steps: Mapping[str, Entry]) -> Iterator[str]:
    """A training, and those whose checkpoints it starts from, directly or not."""
    yield name
    for _, value in options_of(steps[name]["command"]):
        for other in makers(value, steps) if value.endswith(".pt") else ():
            yield from trainings(other, steps)


def differences(now: Mapping[str, str], then: Mapping[str, str]) -> list[str]:
    """What differs between settings, each as a few words."""
    return [
        f"{name} {now.get(name, 'nothing')} instead of {then.get(name, 'nothing')}"
        for name in sorted({*now, *then})
        if now.get(name) != then.get(name)
    ]
