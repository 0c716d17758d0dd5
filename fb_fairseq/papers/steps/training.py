"""A training with fairseq, and the last steps of a recipe."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fb_fairseq.errors import UserError
from fb_fairseq.papers.steps import PYTHON, Call, Step
from fb_fairseq.papers.steps.words import words

FINETUNED = "-finetuned"
NEVER = 1_000_000  # epochs: validation and checkpoints follow the updates, as an epoch's length depends on the data
INTERVAL = 25  # updates between log entries, or fewer: about ten points in figures
FIGURES = "fb_fairseq.papers.figures"
RESULTS = "fb_fairseq.papers.results.write"


def best(call: Call, run: str) -> str:
    """The best checkpoint of a run."""
    return call.at(run, "checkpoint_best.pt")


def fairseq_train(
    call: Call, run: str, *, data: str, options: Mapping[str, Any], updates: int, every: int, seed: int
) -> Step:
    """Train OUT/RUN on OUT/DATA. Its output is added to OUT/RUN.log.

    Args:
        call: the call of the recipe.
        run: the folder of the checkpoints.
        data: that of the binarised data.
        options: of fairseq-train, beside those that follow.
        updates: their number.
        every: updates between validations, and between checkpoints.
        seed: of the parameters and the data's order.
    """
    command = [*call.launch, "fairseq-train", call.at(data), "--user-dir", "fb_fairseq", *words(options)]
    command += ["--validate-interval-updates", every, "--save-interval-updates", every]
    command += ["--validate-interval", NEVER, "--save-interval", NEVER, "--no-epoch-checkpoints", "--seed", seed]
    command += [*call.cpu, "--log-format", "json", "--log-interval", min(INTERVAL, (updates + 9) // 10)]
    command += [*call.extra, "--max-update", updates, "--save-dir", call.at(run)]
    log = call.at(f"{run}.log")
    return Step(f"train {run}", command, [best(call, run), log], log=log, trains=True)


def batch_of(call: Call, streams: int) -> dict[str, int]:
    """The options of a batch of so many streams, over all processes and all parts of an update."""
    freq = call.options.get("update_freq", 1)
    parts = call.processes * freq
    if streams % parts:
        raise UserError(f"{streams} streams cannot be divided by {parts}: --processes (or GPUs) times --update-freq")
    return {"batch_size": streams // parts, "update_freq": freq}


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
    drawn = [f"{run}={call.at(f'{log}.log')}" for run, all_of_run in logs.items() for log in all_of_run]
    figure = call.at(f"{name}.png")
    command = [*PYTHON, "fb_fairseq", "plot", "--curves", *drawn, "--metric", metric, *more, "--out", figure]
    return Step(f"draw {name}", command, [figure])


def against(call: Call, field: str, *metrics: str) -> Step:
    """Draw results against one of their fields, such as ``layers`` or ``lr``, to OUT/FIELD.png."""
    command = [*PYTHON, f"{FIGURES}.against", call.out, field, *metrics]
    return Step(f"draw results against {field}", command, [call.at(f"{field}.png")])


def drawn(call: Call, figure: str, name: str, *arguments: object) -> Step:
    """Draw one of ``papers/figures`` to OUT/NAME."""
    return Step(f"draw {name}", [*PYTHON, f"{FIGURES}.{figure}", call.out, *arguments], [call.at(name)])


def suffix(seed: int, layers: int | None = None, span: int | None = None) -> str:
    """The end of a run's name: what it differs in, and its seed unless that is 1."""
    parts = []
    if span:
        parts.append(f"-span{span}")
    if layers:
        parts.append(f"-{layers}")
    if seed != 1:
        parts.append(f"-seed{seed}")
    return "".join(parts)
