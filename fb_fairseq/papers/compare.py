"""Print the papers' tables with the results of recipes beside them.

    fb-fairseq compare runs/char_ptb
    fb-fairseq compare runs/seed1 runs/seed2 runs/seed3

OUT is the output folder of a recipe of examples/, or a folder that contains such folders, one for each seed, say. Runs
that differ only in their seed are summarised: mean ± sample standard deviation. Then come all results, in a table of
their own for each recipe, with the number of updates, hours of training and the hardware.
"""

import math

from fb_fairseq.command_line import CommandParser
from fb_fairseq.papers.results.runs import IDENTITY, Group, grouped, read_runs
from fb_fairseq.papers.results.words import HEADINGS, in_words, markdown, spread
from fb_fairseq.papers.values import load

DEEP = 6  # decoder layers; "reducing to 1-layer improves decoding speed by 4.2x"


def with_speedups(runs: list[dict]) -> list[dict]:
    """The runs, with ``decoding_speedup``: how many times as fast a shallow decoder decodes as the same model with six
    layers, if that was measured on the same hardware (v3 §4.2.1, v1 §4.2).
    """

    def all_but_depth(run: dict) -> str:
        same = {**run.get("settings", {}), **{name: run.get(name) for name in (*IDENTITY, "seed", "hardware")}}
        return str(sorted((name, value) for name, value in same.items() if name not in ("layers", "decoder_layers")))

    def speed_of(run: dict) -> float:
        speed = run.get("decoded_tokens_per_second")
        return speed if isinstance(speed, (int, float)) else 0

    deep: dict[str, float] = {}
    for run in runs:
        if run.get("layers") == DEEP and speed_of(run):
            deep.setdefault(all_but_depth(run), speed_of(run))  # of runs with one seed, the first counts
    found = []
    for run in runs:
        speed, reference = speed_of(run), deep.get(all_but_depth(run))
        found.append({**run, "decoding_speedup": speed / reference} if speed and reference else run)
    return found


def name_of(group: Group) -> str:
    """A group in words."""
    identity = group.identity
    words = [str(identity["model"])]
    named = [name for name in ("layers", "attention_span", "span", "projections", "data") if identity.get(name)]
    words += [in_words(name, identity[name]) for name in named]
    words += ["fine-tuned"] if identity.get("finetuned") else []
    return ", ".join([*words, *group.words()])


def updates_of(group: Group) -> str:
    """How many updates each run got; the fewest and the most if they differ, as after early stopping."""
    updates = sorted(filter(math.isfinite, group.values("num_updates")))
    return " to ".join(dict.fromkeys(f"{round(number):,}" for number in updates[:1] + updates[-1:]))


def paper_table(table: dict, groups: list[Group]) -> list[str]:
    """One of the papers' tables, with a column of ours for each of its metrics that we have measured; no lines if none
    of our results belongs in it.

    Args:
        table: of papers/values/results.json: metrics, and rows with the settings that they match.
        groups: our runs, grouped by what they were made with.
    """
    small = bool(groups[0].identity.get("small"))
    found = []  # of each row, the groups that belong in it
    for row in table["rows"]:
        wanted = row.get("small" if small else "match")
        found.append([group for group in groups if wanted and group.matches(wanted)])
    if not any(found):
        return []
    columns = {"": [row["name"] + (f" ({row['parameters']})" if "parameters" in row else "") for row in table["rows"]]}
    for metric, heading in table["metrics"].items():
        columns[f"{heading}, paper"] = [str(row.get(metric, "")) for row in table["rows"]]
        if any(group.values(metric) for group in groups):
            columns[f"{heading}, ours"] = [
                "; ".join(spread(group.values(metric), metric) for group in own) for own in found
            ]
    columns["our run"] = ["; ".join(map(name_of, own)) for own in found]
    columns["seeds"] = ["; ".join(str(len(group.runs)) for group in own) for own in found]
    setting = "ours: the recipe's small setting, which is not comparable" if small else "ours: the paper's setting"
    head = [f"## {table['table']} ({table['where']}): {table['title']}", "", f"({setting})", ""]
    return [*head, *lines_of(columns), ""]


def other_table(recipe: str, groups: list[Group]) -> list[str]:
    """All results of a recipe, whether or not they are in the papers' tables."""
    columns = {"": list(map(name_of, groups))}
    for metric, heading in HEADINGS.items():
        measured = [group.values(metric) for group in groups]
        if any(measured):
            columns[heading] = [spread(values, metric) for values in measured]
    if any(group.values("num_updates") for group in groups):
        columns["updates"] = list(map(updates_of, groups))
    seconds = [group.values("seconds") for group in groups]
    if any(seconds):
        columns["hours"] = [spread([value / 3600 for value in values], "hours") for values in seconds]
    columns["seeds"] = [str(len(group.runs)) for group in groups]
    small = ", small setting" if groups[0].identity.get("small") else ""
    hardware = dict.fromkeys(str(run["hardware"]) for group in groups for run in group.runs if "hardware" in run)
    measured_on = [f"Measured on {'; '.join(hardware)}.", ""] if hardware else []
    return [f"## {recipe}{small}", "", *lines_of(columns), "", *measured_on]


def lines_of(columns: dict[str, list[str]]) -> list[str]:
    """The lines of a table with these columns, by their headings."""
    return markdown(list(columns), [list(row) for row in zip(*columns.values())])


def comparison(outs: list[str]) -> list[str]:
    """The lines that the command prints."""
    by_recipe: dict[tuple[str, bool], list[Group]] = {}
    for group in grouped(with_speedups([run for out in outs for run in read_runs(out)])):
        key = str(group.identity["recipe"]), bool(group.identity.get("small"))
        by_recipe.setdefault(key, []).append(group)
    lines: list[str] = []
    for (recipe, _), groups in by_recipe.items():
        for table in load("results"):
            if table["recipe"] == recipe:
                lines += paper_table(table, groups)
        lines += other_table(recipe, groups)
    return lines


def main(argv=None) -> None:
    """Run the command; see ``--help``."""
    parser = CommandParser("compare", description=__doc__)
    parser.add_argument("out", nargs="+", metavar="OUT", help="output folder of a recipe")
    args = parser.parse_args(argv)
    with parser.one_line_errors():
        print("\n".join(comparison(args.out)).rstrip())
