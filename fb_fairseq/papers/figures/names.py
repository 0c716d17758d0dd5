"""The names of groups of runs in figures: their models, and whatever else sets them apart."""

from collections.abc import Sequence

from fb_fairseq.drawing.models import model_name
from fb_fairseq.papers.results.runs import NAMED, Group
from fb_fairseq.papers.results.words import in_words

NAMED_APART = {"model", "finetuned"}  # stand in each name


def value_of(group: Group, field: str) -> float | None:
    """The number that a group's results have in a field; None if they have none, or several."""
    values = set(group.values(field))
    return values.pop() if len(values) == 1 else None


def settings_apart(groups: Sequence[Group], field: str = "") -> list[list[str]]:
    """The settings that set each group apart, each in a few words, but for its model, fine-tuning and the field."""
    names = [name for name in NAMED if name not in {*NAMED_APART, field} and _differs(name, groups)]
    found = []
    for group in groups:
        own = [in_words(name, group.identity[name]) for name in names if name in group.identity]
        found.append(own + group.words(field))
    return found


def _differs(name: str, groups: Sequence[Group]) -> bool:
    """Whether a setting has several values, or only some groups of the same model have it."""
    by_model: dict[object, set] = {}
    for group in groups:
        by_model.setdefault(group.identity["model"], set()).add(group.identity.get(name))
    given = set().union(*by_model.values()) - {None}
    only_some_have_it = any(None in own and len(own) > 1 for own in by_model.values())
    return len(given) > 1 or only_some_have_it


def labels(groups: Sequence[Group], field: str = "") -> list[str]:
    """The name of each group in a figure: its model, and whatever else sets it apart, but for the field."""
    found = []
    for group, words in zip(groups, settings_apart(groups, field)):
        model = str(group.identity["model"])
        value = value_of(group, field)
        if value is not None:
            model = model.removesuffix(f"-{field}{value:g}")
        tuned = ["fine-tuned"] if group.identity.get("finetuned") else []
        found.append(", ".join([model_name(model), *tuned, *words]))
    return found
