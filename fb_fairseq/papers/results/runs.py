"""The results of recipes, read from their results.json; runs that differ only in their seed are one group."""

import glob
import json
import os
from collections.abc import Iterable
from typing import NamedTuple

from fb_fairseq.errors import UserError

# What a run's name says of it, and what else identifies it beside its ``settings``, but for the seed.
NAMED = ("recipe", "small", "model", "layers", "finetuned", "projections", "data", "attention_span", "span")
IDENTITY = (*NAMED, "updates", "lr", "test_streams")


class Group(NamedTuple):
    """Runs that differ in nothing but their seed.

    Attributes:
        identity: the values of ``IDENTITY`` that the results have.
        runs: the results of each seed.
        differs: the settings that set it apart from groups with the same values of ``NAMED``.
    """

    identity: dict[str, object]
    runs: list[dict]
    differs: dict[str, object]

    def words(self, *left_out: str) -> list[str]:
        """The settings that set it apart, each in a few words, without those ``left_out``."""
        return [f"{name} {value}" for name, value in self.differs.items() if name not in left_out]

    def values(self, metric: str) -> list[float]:
        """The measurements of a metric; empty if no run has it. Those of a run that diverged may be NaN."""
        found = [run.get(metric) for run in self.runs]
        return [float(value) for value in found if isinstance(value, (int, float)) and not isinstance(value, bool)]

    def matches(self, wanted: dict[str, object]) -> bool:
        """Whether all wanted values are the group's; of ``data``, the command line's words, all must occur."""
        known = {**self.identity, "data": f" {self.identity.get('data')} "}
        return all(
            f" {value} " in known[name] if name == "data" else known.get(name) == value
            for name, value in wanted.items()
        )


def read_runs(out: str) -> list[dict]:
    """The results of all runs in the output folder of a recipe, or in its subfolders (one per seed, say), each with the
    ``path`` of its files.
    """
    own = os.path.join(out, "results.json")
    paths = [own] if os.path.exists(own) else sorted(glob.glob(os.path.join(glob.escape(out), "*", "results.json")))
    if not paths:
        raise UserError(f"{out}: has no results.json; give the output folder of a recipe whose models are evaluated")
    runs: list[dict] = []
    for path in paths:
        try:
            with open(path, encoding="utf-8") as file:
                found = json.load(file)
            runs += [{**run, "path": os.path.join(os.path.dirname(path), name)} for name, run in found.items()]
        except (OSError, ValueError, AttributeError, TypeError):
            raise UserError(f"{path}: cannot be read; run the recipe's last step again") from None
    if not runs or any("recipe" not in run or "model" not in run for run in runs):
        raise UserError(
            f"{out}: its results do not name their recipe; run the recipe again, which repeats its last step"
        )
    return runs


def grouped(runs: Iterable[dict]) -> list[Group]:
    """The runs by all their settings, in their order; a seed counts once."""
    seeds: dict[tuple, dict[object, dict]] = {}  # by the values of NAMED, and all settings
    for run in runs:
        settings = {**run.get("settings", {}), **identity_of(run)}
        key = tuple(map(run.get, NAMED)), tuple(sorted(settings.items(), key=str))
        seeds.setdefault(key, {}).setdefault(run.get("seed"), run)
    groups = []
    for (named, settings), found in seeds.items():
        alike = [dict(others) for name, others in seeds if name == named]
        differs = {name: value for name, value in settings if any(other.get(name) != value for other in alike)}
        members = list(found.values())
        groups.append(Group(identity_of(members[0]), members, differs))
    return groups


def identity_of(run: dict) -> dict[str, object]:
    """The values of ``IDENTITY`` that a result has."""
    return {name: run[name] for name in IDENTITY if run.get(name) is not None}
