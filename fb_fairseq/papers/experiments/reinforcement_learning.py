"""Agents in a corridor, mazes and a water maze (v3 §4.1.1, §4.2.2, §7.2, §7.3; v1 §4.4). The papers' hyperparameters
are presets of ``python -m fb_fairseq rl``.

Each run is written to OUT/<agent>[-span<S>]-seed<N>, the results of all to OUT/results.json.
"""

import os
from dataclasses import dataclass
from typing import List, Optional, Sequence

from fb_fairseq.errors import UserError
from fb_fairseq.papers.runner.jobs import Jobs
from fb_fairseq.papers.runner.machines import Machines
from fb_fairseq.papers.runner.options import (
    RecipeParser,
    add_numbers,
    add_scale,
    add_seeds,
    names_among,
    number_list,
    output_folder,
    seeds_of,
)
from fb_fairseq.papers.runner.session import new_shell, output
from fb_fairseq.papers.runner.shell import Shell
from fb_fairseq.papers.runner.training import compare

AGENTS = ("feedback", "transformer", "lstm")
FULL_SEEDS = range(1, 11)  # "averaged over 10 trials" (v3 §4.2.2, §6.1)


@dataclass(frozen=True)
class ReinforcementLearning:
    """A recipe.

    Attributes:
        name: of the environment in ``python -m fb_fairseq rl``.
        summary: one line for the list of recipes.
        agents: the default of ``--agents``.
        small_spans: attention spans to compare with ``--small``, the default; empty: the preset's span only.
        full_spans: those of the papers' setting.
    """

    name: str
    summary: str
    agents: Sequence[str] = AGENTS
    small_spans: Sequence[int] = ()
    full_spans: Sequence[int] = ()

    def main(self, argv: Sequence[str], shell: Optional[Shell] = None) -> None:
        """Train and evaluate all agents, and summarise the results.

        Raises:
            UserError: there is a mistake in the command line, or a run has failed.
        """
        args = self.parser().parse(argv)
        shell = shell or new_shell(args.print)
        small = args.small is not False
        scale = "small" if small else "full"
        spans = args.spans or (self.small_spans if small else self.full_spans)
        out = output_folder(args.out, f"{self.name}-{scale}", shell)
        with output(shell, self.name, out):
            machines = Machines()
            if not shell.printing:
                machines.look(shell)
            jobs = Jobs(shell, args.jobs or 1, keep_going=True)
            for seed in seeds_of(args, (1,) if small else FULL_SEEDS):
                for agent in args.agents:
                    for span in spans or [None]:
                        if agent == "lstm" and spans:  # it has no span: it is trained once per seed
                            if span != spans[0]:
                                continue
                            span = None
                        name = agent + ("" if span is None else f"-span{span}") + f"-seed{seed}"
                        options = ["--seed", seed] + ([] if span is None else ["--span", span])
                        train = [
                            "--environment",
                            self.name,
                            *(["--small"] if small else []),
                            "--agent",
                            agent,
                            *options,
                        ]
                        run = Run(os.path.join(out, name), train, args.extra, machines)
                        jobs.start(name, run.train_and_evaluate)
            jobs.wait(f"their logs in {out}")
            shell.comment("summarise")
            summary = "fb_fairseq.papers.experiments.figures.reinforcement_learning"
            shell.run("python", "-m", summary, out, self.name, scale)
            compare(shell, out)

    def parser(self) -> RecipeParser:
        """The parser of its command line."""
        parser = RecipeParser(self.name, "", "python -m fb_fairseq rl train", description=self.summary)
        add_scale(parser, "a smaller setting, for a CPU (the default)")
        add_seeds(parser)
        parser.add_argument("--out", metavar="DIR", help="output folder (default: in runs/)")
        agents = dict(type=names_among(AGENTS), default=list(self.agents), metavar='"NAME …"')
        parser.add_argument("--agents", help="agents to train (default: all that the paper has)", **agents)
        parser.add_argument("--spans", type=number_list, metavar='"N …"', help="attention spans in steps")
        add_numbers(parser, jobs="number of parallel runs (default: 1)")
        return parser


@dataclass
class Run:
    """One agent: writes RUN/ and RUN.json, .gif, .log and .hardware."""

    path: str
    options: List
    extra: List[str]
    machines: Machines

    def train_and_evaluate(self, shell: Shell) -> None:
        """Train the agent, and evaluate it."""
        run, name = self.path, os.path.basename(self.path)
        rl, log = ("python", "-m", "fb_fairseq", "rl"), f"{self.path}.log"
        shell.comment(f"train and evaluate {name}")
        shell.say(f"== {name}")
        hardware = f"{run}.hardware"
        if not shell.printing and not os.path.exists(hardware):
            with open(hardware, "w", encoding="utf-8") as file:
                file.write(f"{self.machines.hardware}\n")
        shell.run(*rl, "train", *self.options, "--out", run, *self.extra, what=name, log=log)
        evaluate = (*rl, "evaluate", "--path", os.path.join(run, "checkpoint.pt"), "--out", f"{run}.json")
        shell.run(*evaluate, "--record", f"{run}.gif", what=name, log=log, append=True)
        if not shell.printing:
            with open(log, encoding="utf-8", errors="replace") as file:
                measured = [line.strip() for line in file if "per episode" in line]
            if not measured:
                raise UserError(f"{log}: the evaluation left no result")
            shell.say(f"== {name}: {measured[-1]}")


CORRIDOR = ReinforcementLearning(
    "corridor",
    "remember a colour from the start to the end; success by memory size (v3 §4.1.1, Figure 3)",
    agents=("feedback", "transformer"),
    small_spans=(4, 8, 16),
    full_spans=(5, 10, 20, 50, 100, 200),
)
MAZE = ReinforcementLearning(
    "maze", "find objects of eight colours and remember where they are (v3 §4.2.2, §7.2); small: 7 x 7 cells"
)
MAZE_EASY = ReinforcementLearning(
    "maze_easy", "the maze with four moves and no orientation (v3 §7.2); small: 7 x 7 cells"
)
WATER_MAZE = ReinforcementLearning(
    "water_maze", "find the goal again by the names of cells (v3 §7.3, v1 §4.4); small: 7 x 7 cells"
)
