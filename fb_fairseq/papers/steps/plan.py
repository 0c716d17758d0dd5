"""The plan of a call: what its steps depend on, and which are done. A step is done if its files are there, and were
written by this very command after all that it depends on. So the same call again goes on where it was stopped: a step
that was begun starts anew, a training from its checkpoint.
"""

import glob
import os
import re
from collections.abc import Sequence

from fb_fairseq.checksums import checksum_of
from fb_fairseq.errors import UserError
from fb_fairseq.papers.results.origins import makers
from fb_fairseq.papers.results.record import HERE, Entry, Record, read_record, write_record
from fb_fairseq.papers.results.settings import differences, settings_of
from fb_fairseq.papers.steps import Step


class Plan:
    """The steps of a call, beside the record of those that have run in its output folder. Methods get the place of a
    step among all.

    Args:
        recipe: its name.
        out: the output folder.
        steps: all steps, in order.
        processes: of each training.

    Attributes:
        record: of this call and of those before.
        names: of the steps in the record.
        planned: by these names, what the record will have of the steps.
        after: of each step, the places of the earlier ones that it depends on.
    """

    def __init__(self, recipe: str, out: str, steps: Sequence[Step], processes: int = 1):
        self.out, self.steps = out, steps
        self.record: Record = read_record(out) or {"recipe": recipe, "steps": {}}
        if self.record["recipe"] != recipe:
            raise UserError(f"--out {out}: is of the recipe {self.record['recipe']}; give another folder")
        self.names = [self.here(step.writes[0]) for step in steps]
        paths = {path for step in steps for path in step.reads}  # the user's files; several steps may read one
        contents = {path: f"{os.path.getsize(path)} bytes, CRC {checksum_of(path)}" for path in paths}
        self.planned: dict[str, Entry] = {}
        for name, step in zip(self.names, steps):
            command = [*step.words, *(["<", step.source] if step.source else [])]
            self.planned[name] = {
                "command": list(map(self.here, command)),
                "reads": {path: contents[path] for path in step.reads},
                "writes": list(map(self.here, step.writes)),
            }
        for name, step in zip(self.names, steps):
            if step.trains:
                entry = self.planned[name]
                entry["processes"] = processes
                entry["settings"] = settings_of(name, {**self.record["steps"], **self.planned})
        self.after = [self.origins(place) for place in range(len(steps))]

    def here(self, word: object) -> str:
        """A word, which may be NAME=PATH, with ``HERE`` in the place of the output folder."""
        return re.sub(rf"^([^=]*=)?{re.escape(self.out)}(?=/|\Z)", rf"\g<1>{HERE}", str(word))

    def origins(self, place: int) -> list[int]:
        """The earlier steps whose files a step's words name, or which read a file of the user that it reads."""
        own = self.planned[self.names[place]]
        earlier = {name: self.planned[name] for name in self.names[:place]}
        found = {name for name, entry in earlier.items() if entry["reads"].keys() & own["reads"].keys()}
        for word in own["command"]:
            path = word if word.startswith(HERE) else word.partition("=")[2]
            if path == HERE:
                return list(range(place))
            if path.startswith(f"{HERE}/"):
                found |= set(makers(path, earlier))
        return sorted(map(self.names.index, found))

    def recorded(self, place: int) -> Entry:
        """The entry of a step in the record; empty if it has not begun in any call."""
        return self.record["steps"].get(self.names[place], {})

    def check(self) -> None:
        """Stop if a training cannot begin, or was begun with other settings."""
        for place, step in enumerate(self.steps):
            if not step.trains:
                continue
            self.check_start(step)
            folder = os.path.dirname(step.writes[0])
            begun = self.recorded(place).get("settings", {})
            saved = begun and glob.glob(os.path.join(glob.escape(folder), "*.pt"))
            found = differences(self.planned[self.names[place]]["settings"], begun) if saved else []
            if found:
                raise UserError(
                    f"{folder}: was begun with other settings: {', '.join(found)}; choose another --out, or delete it"
                )

    def check_start(self, step: Step) -> None:
        """Stop if a training starts from a model that is not there, and that no step of this call trains."""
        for word in map(str, step.words):
            path = self.here(word)
            is_checkpoint = path.startswith(f"{HERE}/") and path.endswith(".pt")
            if is_checkpoint and not os.path.exists(word) and not any(makers(path, self.planned)):
                raise UserError(f"{word}: not there, but {step.does} starts from it; train this model, too")

    def is_done(self, place: int) -> bool:
        """Whether a step is done, provided that what it depends on is."""
        now = self.planned[self.names[place]]
        then = self.recorded(place)
        before = [self.recorded(other)["done"] for other in self.after[place]]
        return (
            then.get("done", 0) > max(before, default=0)
            and (then["command"], then["reads"]) == (now["command"], now["reads"])
            and all(map(os.path.exists, self.steps[place].writes))
        )

    def begin(self, place: int, hardware: str, commit: str) -> None:
        """Write down that a step begins; of a training, on which hardware and with which commit of this package."""
        entry = self.planned[self.names[place]]
        entry["seconds"] = 0.0
        if self.steps[place].trains:
            entry["hardware"] = hardware
            entry["commit"] = commit
            entry["seconds"] = self.recorded(place).get("seconds", 0.0)
        self.record["steps"][self.names[place]] = entry
        self.write()

    def note(self, place: int, seconds: float, done: bool) -> None:
        """Write down that a step has run for so many seconds more, and whether it is done."""
        entry = self.recorded(place)
        entry["seconds"] = round(entry["seconds"] + seconds, 1)
        if done:
            entry["done"] = 1 + max(other.get("done", 0) for other in self.record["steps"].values())
        self.write()

    def write(self) -> None:
        """Write the record, which also marks the output folder."""
        write_record(self.out, self.record)
