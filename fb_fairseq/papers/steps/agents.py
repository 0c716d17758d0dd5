"""The steps of reinforcement learning: agents in a corridor, mazes and a water maze (v3 §4.1.1, §4.2.2, §7.2, §7.3; v1
§4.4). The papers' hyperparameters are presets of ``fb-fairseq rl``.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product

from fb_fairseq.drawing.models import model_name
from fb_fairseq.papers.steps import PYTHON, Call, Recipe, Step
from fb_fairseq.papers.steps.options import check_models, known
from fb_fairseq.papers.steps.results import against, result, summary
from fb_fairseq.papers.steps.training import suffix
from fb_fairseq.papers.steps.words import words

AGENTS = ("feedback", "transformer", "lstm")
FULL_SEEDS = range(1, 11)  # "averaged over 10 trials" (v3 §4.2.2, §6.1)


def recipe(
    environment: str, summary: str, agents: Sequence[str] = AGENTS, spans: Sequence[Sequence[int]] = ((), ())
) -> Recipe:
    """The recipe of an environment. ``spans``: attention spans to compare, small and full; none if there are only the
    preset's.
    """
    return Recipe(
        summary,
        partial(steps_of, environment, agents, spans),
        known("models spans seeds"),
        sizes="small",
        extra="fb-fairseq rl train",
    )


def steps_of(
    environment: str, agents: Sequence[str], default_spans: Sequence[Sequence[int]], call: Call
) -> Iterator[Step]:
    """Train and evaluate the agents. ``default_spans``: see ``recipe``."""
    given = call.options
    runs = {}
    models = given.get("models", agents)
    check_models(models, AGENTS)
    small_spans, full_spans = default_spans
    spans = given.get("spans") or (small_spans if call.small else full_spans) or [None]
    seeds = given.get("seeds") or ([1] if call.small else FULL_SEEDS)
    for seed, span, agent in product(seeds, spans, models):
        own = None if agent == "lstm" else span
        run = f"{agent}{suffix(seed, span=own)}"
        if run in runs:  # an LSTM, which has no span
            continue
        options = {"environment": environment, "small": call.small, "agent": agent, "seed": seed, "span": own}
        path = call.at(run, "checkpoint.pt")
        log = call.at(f"{run}.log")
        command = [*PYTHON, "fb_fairseq", "rl", "train", *words(options), "--out", call.at(run), *call.extra]
        yield Step(f"train {run}", command, [path, log], log=log, trains=True)
        measured = call.at(f"{run}.measured")
        film = call.at(f"{run}.gif")
        command = [*PYTHON, "fb_fairseq", "rl", "evaluate", "--path", path, "--out", measured, "--record", film]
        yield Step(f"evaluate {run}", command, [measured, film])
        yield result(call, run, model=agent, span=own, seed=seed)
        runs[run] = model_name(agent) + (f", span {own}" if own else "")
    yield from summary(call)
    figure = call.at("curves.png")
    curves = [f"{name}={call.at(run)}" for run, name in runs.items()]
    yield Step("draw curves", [*PYTHON, "fb_fairseq", "rl", "plot", *curves, "--out", figure], [figure])
    if spans != [None] and set(models) != {"lstm"}:
        yield against(call, "span", "success")
