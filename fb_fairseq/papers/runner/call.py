"""What the calls of all recipes with steps have in common: where they read and write, the data, and all their runs."""

import argparse
import os
from typing import Any, List, Sequence

from fb_fairseq.errors import UserError
from fb_fairseq.papers.runner import data as prepared
from fb_fairseq.papers.runner.jobs import Jobs
from fb_fairseq.papers.runner.machines import find_machines
from fb_fairseq.papers.runner.options import output_folder
from fb_fairseq.papers.runner.session import find_data
from fb_fairseq.papers.runner.shell import Shell
from fb_fairseq.papers.runner.training import Trainer


class Call:
    """One call of a recipe. ``runs`` has its runs, once a subclass has set it.

    Args:
        recipe: with a name, a corpus and ``prepare``.
        shell: of the recipe.
        args: its command line.
        training_steps: those in which all machines take part.
    """

    runs: Sequence[Any] = ()

    def __init__(self, recipe: Any, shell: Shell, args: argparse.Namespace, training_steps: Sequence[str]):
        self.recipe, self.shell, self.args = recipe, shell, args
        self.steps: List[str] = args.steps
        self.small = bool(args.small)
        self.update_freq: int = args.update_freq or 1
        self.source = find_data(shell, args.data, "prepare" in self.steps) if recipe.corpus else ""
        self.out = output_folder(args.out, recipe.name + ("-small" if self.small and recipe.full else ""), shell)
        self.machines = find_machines(args.nodes, args.node_rank, args.rendezvous)
        if self.machines.node_rank:
            self.steps = [step for step in self.steps if step in training_steps]
        self.data = os.path.join(self.out, "data")
        self.trainer = Trainer(self.out, self.machines, args.extra)

    def prepare(self, dictionary: str) -> None:
        """Prepare the data, if this is asked for, and look at the machines.

        Args:
            dictionary: a file that prepared data have.

        Raises:
            UserError: there are no data.
        """
        shell, recipe, small = self.shell, self.recipe, self.small
        if "prepare" in self.steps:
            prepared.prepare_data(
                *(shell, self.out, self.data, recipe.name + (" --small" if small else ""), self.source),
                lambda shell, source, folder: recipe.prepare(shell, source, folder, small),
            )
        if self.machines.node_rank == 0 and not shell.printing:
            if not os.path.exists(os.path.join(self.data, dictionary)):
                raise UserError(f"{self.data}: no prepared data; run step prepare first")
        self.machines.look(shell)

    def run_all(self) -> None:
        """Run the steps of all runs, as many at a time as ``--jobs`` says."""
        self.machines.check_jobs(self.shell, self.args.jobs)
        jobs = Jobs(self.shell, self.args.jobs or 1)
        for run in self.runs:
            if self.starts_from_another(run):
                jobs.wait()  # among others for the one whose parameters it starts from
            jobs.start(run.name, lambda shell, run=run: self.run_steps(shell, run))
        jobs.wait()

    def starts_from_another(self, run: Any) -> bool:
        """Whether a run starts from the parameters of another one."""
        raise NotImplementedError

    def run_steps(self, shell: Shell, run: Any) -> None:
        """Run the steps of one run."""
        raise NotImplementedError
