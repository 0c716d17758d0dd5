"""Print the papers' tables with the results of recipes beside them.

    python -m fb_fairseq compare runs/char_ptb
    python -m fb_fairseq compare runs/seed1 runs/seed2 runs/seed3

OUT is the output folder of a recipe of examples/, or one with such folders. Runs that differ only in their seed are
summarised: mean ± sample standard deviation. Then come all results, in a table of their own for each recipe, with the
number of updates, hours of training and the hardware.
"""

from fb_fairseq.command_line import CommandParser
from fb_fairseq.papers.compare.tables import other_table, paper_table
from fb_fairseq.papers.runner.results import IDENTITY, Group, grouped, read_runs
from fb_fairseq.papers.values import load

DEEP = 6  # decoder layers; "reducing to 1-layer improves decoding speed by 4.2x"
# Runs that agree in these differ in depth alone.
SAME = (*(name for name in IDENTITY if name != "layers"), "seed", "hardware")


def with_speedups(runs: list[dict]) -> list[dict]:
    """The runs, with ``decoding_speedup``: how many times as fast a shallow decoder decodes as the same model with six
    layers, if that was measured on the same hardware (v3 §4.2.1, v1 §4.2)."""

    def speed_of(run: dict) -> float:
        speed = run.get("decoded_tokens_per_second")
        return speed if isinstance(speed, (int, float)) and speed > 0 else 0

    def setting_of(run: dict) -> tuple:
        return tuple(run.get(name) for name in SAME)

    deep = {setting_of(run): speed_of(run) for run in runs if run.get("layers") == DEEP and speed_of(run)}
    found = []
    for run in runs:
        reference = deep.get(setting_of(run))
        speedup = {"decoding_speedup": speed_of(run) / reference} if reference and speed_of(run) else {}
        found.append({**run, **speedup})
    return found


def build_parser() -> CommandParser:
    """The command's options."""
    parser = CommandParser("compare", description=__doc__)
    parser.add_argument("out", nargs="+", metavar="OUT", help="output folder of a recipe")
    return parser


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
    parser = build_parser()
    args = parser.parse_args(argv)
    with parser.one_line_errors():
        print("\n".join(comparison(args.out)).rstrip())
