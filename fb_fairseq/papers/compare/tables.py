"""The papers' tables with our results in columns beside theirs, in Markdown."""

import math
from collections.abc import Sequence

from fb_fairseq.papers.runner.results import HEADINGS, Group, spread


def markdown(columns: Sequence[str], rows: list[list[str]]) -> list[str]:
    """The lines of a table; all columns but the first are aligned to the right."""
    line = "| " + " | ".join(columns) + " |"
    return [line, "|---|" + "---:|" * (len(columns) - 1), *("| " + " | ".join(row) + " |" for row in rows)]


def name_of(group: Group) -> str:
    """A group in words."""
    identity = dict(group.identity)
    words = [str(identity["model"])]
    if identity.get("layers"):
        words.append(f"{identity['layers']} layer" + ("s" if identity["layers"] != 1 else ""))
    for name in ("attention_span", "span"):
        if identity.get(name):
            words.append(f"span {identity[name]}")
    for name in ("projections", "data"):
        if identity.get(name):
            words.append(str(identity[name]))
    if identity.get("finetuned"):
        words.append("fine-tuned")
    return ", ".join(words)


def seeds_of(groups: Sequence[Group]) -> str:
    """How many seeds each group has; empty without groups."""
    return "; ".join(str(len(group.runs)) for group in groups)


def updates_of(group: Group) -> str:
    """How many updates each run got; the fewest and the most if they differ, as after early stopping."""
    updates = [f"{round(number):,}" for number in sorted(set(filter(math.isfinite, group.values("num_updates"))))]
    return " to ".join(updates[:1] + updates[1:][-1:])


def paper_table(table: dict, groups: list[Group]) -> list[str]:
    """One of the papers' tables, with a column of ours for each of its metrics that we have measured; no lines if none
    of our results belongs in it."""
    metrics: dict[str, str] = table["metrics"]
    small = bool(groups[0].identity.get("small"))
    measured = [metric for metric in metrics if any(group.values(metric) for group in groups)]
    rows, ours = [], False
    for row in table["rows"]:
        wanted = row.get("small" if small else "match")
        found = [group for group in groups if wanted and group.matches(wanted)]
        ours = ours or bool(found)
        cells = [row["name"] + (f" ({row['parameters']})" if "parameters" in row else "")]
        for metric in metrics:
            cells.append(str(row.get(metric, "")))
            if metric in measured:
                cells.append("; ".join(spread(group.values(metric), metric) for group in found))
        rows.append([*cells, "; ".join(map(name_of, found)), seeds_of(found)])
    if not ours:
        return []
    columns = [""]
    for metric, heading in metrics.items():
        columns += [f"{heading}, paper"] + [f"{heading}, ours"] * (metric in measured)
    setting = "ours: the recipe's small setting, which is not comparable" if small else "ours: the paper's setting"
    head = [f"## {table['table']} ({table['where']}): {table['title']}", "", f"({setting})", ""]
    return [*head, *markdown([*columns, "our run", "seeds"], rows), ""]


def other_table(recipe: str, groups: list[Group]) -> list[str]:
    """All results of a recipe, whether or not they are in the papers' tables."""
    metrics = [metric for metric in HEADINGS if any(group.values(metric) for group in groups)]
    counted = any(group.values("num_updates") for group in groups)
    timed = any(group.values("seconds") for group in groups)
    columns = ["", *(HEADINGS[metric] for metric in metrics)]
    columns += [*(["updates"] if counted else []), *(["hours"] if timed else []), "seeds"]
    rows = []
    for group in groups:
        cells = [name_of(group), *(spread(group.values(metric), metric) for metric in metrics)]
        if counted:
            cells.append(updates_of(group))
        if timed:
            cells.append(spread([seconds / 3600 for seconds in group.values("seconds")], "hours"))
        rows.append([*cells, seeds_of([group])])
    small = ", small setting" if groups[0].identity.get("small") else ""
    hardware = dict.fromkeys(str(run["hardware"]) for group in groups for run in group.runs if "hardware" in run)
    measured_on = [f"{'Trained' if timed else 'Measured'} on {'; '.join(hardware)}.", ""] if hardware else []
    return [f"## {recipe}{small}", "", *markdown(columns, rows), "", *measured_on]
