"""Agents in a corridor, mazes and a water maze (v3 §4.1.1, §4.2.2, §7.2, §7.3; v1 §4.4). The papers' hyperparameters
are presets of ``python -m fb_fairseq rl``.
"""

import os
from collections.abc import Sequence

from fb_fairseq.errors import UserError
from fb_fairseq.papers.runner.options import names_among
from fb_fairseq.papers.runner.results import compare
from fb_fairseq.papers.runner.settings import words
from fb_fairseq.papers.runner.shell import Shell, read
from fb_fairseq.papers.runner.sweep import Axis, Call, Run, Sweep

AGENTS = ("feedback", "transformer", "lstm")
FULL_SEEDS = range(1, 11)  # "averaged over 10 trials" (v3 §4.2.2, §6.1)
RL = ("python", "-m", "fb_fairseq", "rl")
FIGURE = "fb_fairseq.papers.experiments.figures.reinforcement_learning"


def train(shell: Shell, run: Run) -> None:
    """Train an agent, in RUN/."""
    given = {"agent": run.values["agent"], "seed": run.values["seed"], "span": run.values.get("span")}
    command = (*RL, "train", *words({**run.options, **given}), "--out", run.path, *run.extra)
    shell.run(*command, what=run.name, log=run.log, append=True)


def evaluate(shell: Shell, run: Run) -> None:
    """Evaluate an agent to RUN.json, and record an episode to RUN.gif."""
    evaluation = ("--path", os.path.join(run.path, "checkpoint.pt"), "--out", f"{run.path}.json")
    shell.run(*RL, "evaluate", *evaluation, "--record", f"{run.path}.gif", what=run.name, log=run.log, append=True)
    shell.do(say_result, shell, run)


def say_result(shell: Shell, run: Run) -> None:
    """Say what the evaluation has measured."""
    measured = [line.strip() for line in read(run.log).splitlines() if "per episode" in line]
    if not measured:
        raise UserError(f"{run.log}: the evaluation left no result; run the same command again")
    shell.say(f"== {run.name}: {measured[-1]}")


def summarise(call: Call) -> None:
    """Put all runs together, and compare them with the papers' tables."""
    call.shell.comment("summarise")
    size = "small" if call.small else "full"
    call.shell.run("python", "-m", FIGURE, call.out, call.setting["environment"], size)
    compare(call.shell, call.out)


def environment(name: str, summary: str, agents: Sequence[str] = AGENTS, spans: Sequence[Sequence[int]] = ()) -> Sweep:
    """The recipe of an environment. Attention spans to compare, small and full, are none if there are only the
    preset's."""
    text, known = "agents to train (default: all that the paper has)", names_among(AGENTS)
    attends = lambda values: values["agent"] != "lstm"
    return Sweep(
        name,
        summary,
        "python -m fb_fairseq rl train",
        "train and evaluate",
        axes=(
            Axis("agent", text, agents, agents, known),
            Axis("span", "attention spans in steps", *spans, label="span{}", applies=attends),
        ),
        each=(train, evaluate),
        figures=(summarise,),
        small=dict(environment=name, small=True),
        full=dict(environment=name),
        seeds=FULL_SEEDS,
    )


CORRIDOR = environment(
    "corridor",
    "remember a colour from the start to the end; success by memory size (v3 §4.1.1, Figure 3)",
    agents=("feedback", "transformer"),
    spans=((4, 8, 16), (5, 10, 20, 50, 100, 200)),
)
_text = "find objects of eight colours and remember where they are (v3 §4.2.2, §7.2); small: 7 x 7 cells"
MAZE = environment("maze", _text)
MAZE_EASY = environment("maze_easy", "the maze with four moves and no orientation (v3 §7.2); small: 7 x 7 cells")
_text = "find the goal again by the names of cells (v3 §7.3, v1 §4.4); small: 7 x 7 cells"
WATER_MAZE = environment("water_maze", _text)
