"""The settings of a training, from the record of a recipe's steps: all that its result depends on.

They are the options of its command, and of the commands that have made the data and checkpoints it starts from.
"""

import os
import re
from collections.abc import Mapping

from fb_fairseq.papers.results.origins import makers, options_of
from fb_fairseq.papers.results.record import HERE, Entry

# Options on which no result depends but by rounding. A training whose time was up may get more.
IRRELEVANT = re.compile(
    r"seed|cpu|device|user_dir|ddp_backend|(distributed|log|step_loop)_.*|(num_)?workers|step_loop"
    r"|checkpoint_activations|stop_time_hours|tensorboard_logdir|minutes|overwrite"
)
TRAIN = "fairseq-train"
PER_PROCESS = ("batch_size", "max_tokens")


def settings_of(name: str, steps: Mapping[str, Entry]) -> dict[str, str]:
    """All that the result of a step depends on, but its seed, as texts by name.

    Settings of a model that the training starts from have the option before their names, as in ``finetune_from_model
    lr``; those of data only if there is another setting of their name.

    Args:
        name: of the step.
        steps: the record's.
    """
    found, paths = own_settings(steps[name])
    for path, option in paths.items():
        others = list(makers(path, steps))
        if name in others:  # they are its own files
            continue
        for other in others:
            for key, value in settings_of(other, steps).items():
                prefixed = path.endswith(".pt") or found.get(key, value) != value
                found.setdefault(f"{option or 'data'} {key}" if prefixed else key, value)
    return dict(sorted(found.items()))


def own_settings(entry: Entry) -> tuple[dict[str, str], dict[str, str]]:
    """The settings of a step's own command, and the options with which it reads files of the recipe, by their paths.

    Of options that are given twice, the last one counts. Words before fairseq-train, which launch it, do not count.
    """
    found = {f"data {os.path.basename(path)}": content for path, content in entry["reads"].items()}
    paths = {}
    command = entry["command"]
    for option, value in options_of(command[command.index(TRAIN) if TRAIN in command else 0 :]):
        if value.startswith(f"{HERE}/"):
            paths[value] = option
        elif option and not IRRELEVANT.fullmatch(option):
            found[option] = value
    return of_whole_batches(found, entry.get("processes", 1)), paths


def of_whole_batches(settings: Mapping[str, str], processes: int) -> dict[str, str]:
    """Settings whose batch is that of all processes, and of all parts of an update."""
    found = dict(settings)
    parts = found.pop("update_freq", "1")
    batches = [option for option in PER_PROCESS if found.get(option, "").isdecimal()]
    if not parts.isdecimal() or not batches and parts != "1":  # 4,2, say: other parts in each epoch
        found["update_freq"] = parts
        parts = "1"
    for option in batches:
        found[option] = str(int(found[option]) * int(parts) * processes)
    return found


def differences(now: Mapping[str, str], then: Mapping[str, str]) -> list[str]:
    """The differences between settings, each in a few words."""
    return [
        f"{name} {now.get(name, 'nothing')} instead of {then.get(name, 'nothing')}"
        for name in sorted({*now, *then})
        if now.get(name) != then.get(name)
    ]
