"""The last steps of a recipe: results, their comparison with the papers', and figures."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fb_fairseq.papers.steps import PYTHON, Call, Step

FIGURES = "fb_fairseq.papers.figures"
RESULTS = "fb_fairseq.papers.results.write"


def result(call: Call, run: str, **identity: Any) -> Step:
    """Write OUT/RUN.json: what the run is, ``identity``, and what was measured."""
    given = {"recipe": call.name, "small": call.small, **identity}
    known = [f"--{name}={json.dumps(value)}" for name, value in given.items() if value is not None]
    command = [*PYTHON, RESULTS, call.at(run), *known]
    return Step(f"results of {run}", command, [call.at(f"{run}.json")], shown=True)


def summary(call: Call) -> Iterator[Step]:
    """Collect the results of all runs, and compare them with the papers'."""
    yield Step("collect results", [*PYTHON, RESULTS, call.out], [call.at("results.json")])
    table = call.at("compared.md")
    yield Step("compare", [*PYTHON, "fb_fairseq", "compare", call.out], [table], output=table, shown=True)


def curves(call: Call, logs: Mapping[str, Sequence[str]], metric: str, name: str = "curves", *more: str) -> Step:
    """Draw learning curves to OUT/NAME.png.

    Args:
        call: the call of the recipe.
        logs: of each run, by its name in the figure, the names of its logs.
        metric: see ``plot --metric``; so are ``more``, further words of ``plot``.
        name: of the figure.
    """
    named = [f"{run}={call.at(f'{log}.log')}" for run, all_of_run in logs.items() for log in all_of_run]
    figure = call.at(f"{name}.png")
    command = [*PYTHON, "fb_fairseq", "plot", "--curves", *named, "--metric", metric, *more, "--out", figure]
    return Step(f"draw {name}", command, [figure])


def against(call: Call, field: str, *metrics: str) -> Step:
    """Draw results against one of their fields, such as ``layers`` or ``lr``, to OUT/FIELD.png."""
    command = [*PYTHON, f"{FIGURES}.against", call.out, field, *metrics]
    return Step(f"draw results against {field}", command, [call.at(f"{field}.png")])


def drawn(call: Call, figure: str, name: str, *arguments: object) -> Step:
    """Draw one of ``papers/figures`` to OUT/NAME."""
    return Step(f"draw {name}", [*PYTHON, f"{FIGURES}.{figure}", call.out, *arguments], [call.at(name)])
