"""The settings of a training, from the record of a recipe's steps: all that its result depends on.

They are the options of its command, and of the commands that have made the data and checkpoints it starts from.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence

from fb_fairseq.papers.results.record import HERE, Entry

OPTION = re.compile(r"--[A-Za-z]")
# Options on which no result depends but by rounding. A training whose time was up may get more.
IRRELEVANT = re.compile(
    r"seed|cpu|device|user_dir|ddp_backend|(distributed|log|step_loop)_.*|(num_)?workers|step_loop"
    r"|checkpoint_activations|stop_time_hours|tensorboard_logdir|minutes|overwrite"
)
TRAIN = "fairseq-train"
PER_PROCESS = ("batch_size", "max_tokens")


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


def settings_of(name: str, steps: Mapping[str, Entry]) -> dict[str, str]:
    """All that the result of a step depends on, but its seed, as texts by name.

    Of options that are given twice, the last one counts. A batch is that of all processes. Words before fairseq-train,
    which launch it, do not count. Settings of a model that the training starts from have the option before their names,
    as in ``finetune_from_model lr``; those of data only if there is another setting of their name.

    Args:
        name: of the step.
        steps: the record's.
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
        if name in others:  # they are its own files
            continue
        for other in others:
            for key, value in settings_of(other, steps).items():
                prefixed = path.endswith(".pt") or found.get(key, value) != value
                found.setdefault(f"{option} {key}" if prefixed else key, value)
    return dict(sorted(found.items()))


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


def differences(now: Mapping[str, str], then: Mapping[str, str]) -> list[str]:
    """The differences between settings, each in a few words."""
    return [
        f"{name} {now.get(name, 'nothing')} instead of {then.get(name, 'nothing')}"
        for name in sorted({*now, *then})
        if now.get(name) != then.get(name)
    ]
