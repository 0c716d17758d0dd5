"""The steps of a recipe that have written what another step reads."""

import re
from collections.abc import Iterator, Mapping, Sequence

from fb_fairseq.papers.results.record import Entry

OPTION = re.compile(r"--[A-Za-z]")


def options_of(command: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The options of a command, by their names with underscores, with their values, which may be empty; and words that
    belong to no option, by an empty name.
    """
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


def makers(path: str, steps: Mapping[str, Entry]) -> Iterator[str]:
    """The names of the steps that write a path: a file, files in a folder, or files with this beginning, as
    fairseq-preprocess is given them.
    """
    for name, entry in steps.items():
        if any(f"{written}/".startswith((f"{path}/", f"{path}.")) for written in entry["writes"]):
            yield name


def trainings(name: str, steps: Mapping[str, Entry]) -> Iterator[str]:
    """The names of a training, and of those whose checkpoints it starts from, directly or not."""
    yield name
    for _, value in options_of(steps[name]["command"]):
        if value.endswith(".pt"):
            for other in makers(value, steps):
                yield from trainings(other, steps)
