"""Experiments that run the same steps for all combinations of some values: models, spans, learning rates, seeds, ….

The files of a run are OUT/<its values>.log, …; the experiment's figures put all runs together in OUT/results.json.
"""

import argparse
import os
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence

from fb_fairseq.papers.runner.jobs import Jobs
from fb_fairseq.papers.runner.machines import Machines
from fb_fairseq.papers.runner.options import (
    RecipeParser,
    add_numbers,
    add_scale,
    add_seeds,
    number_list,
    output_folder,
    seeds_of,
)
from fb_fairseq.papers.runner.session import new_shell, output
from fb_fairseq.papers.runner.settings import Options
from fb_fairseq.papers.runner.shell import Shell


@dataclass(frozen=True)
class Axis:
    """A value in which runs differ.

    Attributes:
        name: of the value, such as ``span``; the experiment's option is ``--spans``.
        help: text of that option.
        small: values of the small setting; empty: runs do not have the value, unless the option is given.
        full: values of the full setting.
        kind: parses the option's values.
        label: how the value is written in a run's name.
        applies: whether a run with these other values has this one, too; else it is run once.
    """

    name: str
    help: str
    small: Sequence[Any] = ()
    full: Sequence[Any] = ()
    kind: Callable[[str], list] = number_list
    label: str = "{}"
    applies: Callable[[Mapping[str, Any]], bool] = lambda values: True


@dataclass(frozen=True)
class Run:
    """A combination of values.

    Attributes:
        path: of its files, without their ending.
        values: by axis, and the ``seed``.
        options: of all runs, from the setting and the command line.
        extra: what follows ``--`` on the command line.
    """

    path: str
    values: Mapping[str, Any]
    options: Options
    extra: Sequence[str]

    @property
    def name(self) -> str:
        """The values as one word."""
        return os.path.basename(self.path)

    @property
    def log(self) -> str:
        """The file for the output of its commands."""
        return f"{self.path}.log"


Step = Callable[[Shell, Run], None]
Figure = Callable[[Shell, str, argparse.Namespace, Options], None]


@dataclass(frozen=True)
class Sweep:
    """An experiment.

    Attributes:
        name: in the list of recipes.
        summary: one line for the list.
        extra: the command that gets what follows ``--``.
        doing: the steps in words.
        axes: in the order of a run's name; the last one varies most slowly, but for the seed.
        steps: of each run, one after the other.
        figures: drawn when all runs have ended, ``draw(shell, out, args, options)``.
        small: options of every run on a CPU, the default.
        full: options of the papers' setting, or for a GPU.
        seeds: of the full setting.
        changes: options of the command line that replace those of the setting, as argparse describes them.
        switches: further options of the command line that are on or off, with their help.
        variant: the option whose value is a part of the output folder's name.
    """

    name: str
    summary: str
    extra: str
    doing: str
    axes: Sequence[Axis]
    steps: Sequence[Step]
    figures: Sequence[Figure]
    small: Options = field(default_factory=dict)
    full: Options = field(default_factory=dict)
    seeds: Sequence[int] = (1,)
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    switches: Mapping[str, str] = field(default_factory=dict)
    variant: str = ""

    def main(self, argv: Sequence[str], shell: Optional[Shell] = None) -> None:
        """Run all combinations, and draw the figures.

        Raises:
            UserError: there is a mistake in the command line, or a run has failed.
        """
        args = self.parser().parse(argv)
        shell = shell or new_shell(args.print)
        scale = "full" if args.small is False else "small"
        given = {name: value for name in self.changes if (value := getattr(args, name))}
        options = {**getattr(self, scale), **given}
        variant = [options[self.variant]] if self.variant else []
        out = output_folder(args.out, "-".join([self.name, *variant, scale]), shell)
        with output(shell, self.name, out):
            machines = Machines()
            if not shell.printing:
                machines.look(shell)
            jobs = Jobs(shell, args.jobs or 1, keep_going=True)
            for values in self.combinations(args, scale):
                run = Run(os.path.join(out, self.name_of(values)), values, options, args.extra)
                jobs.start(run.name, lambda shell, run=run: self.run(shell, run, machines.hardware))
            jobs.wait(f"their logs in {out}")
            for draw in self.figures:
                draw(shell, out, args, options)

    def combinations(self, args: argparse.Namespace, scale: str) -> Iterator[Dict[str, Any]]:
        """The values of each run, in their order."""
        seen: List[Dict[str, Any]] = []
        lists = [getattr(args, f"{axis.name.rstrip('s')}s") or getattr(axis, scale) or [None] for axis in self.axes]
        for seed, *others in product(seeds_of(args, (1,) if scale == "small" else self.seeds), *reversed(lists)):
            chosen = {axis.name: value for axis, value in zip(self.axes, reversed(others)) if value is not None}
            values = {
                axis.name: chosen[axis.name] for axis in self.axes if axis.name in chosen and axis.applies(chosen)
            }
            values["seed"] = seed
            if values not in seen:
                seen.append(values)
                yield values

    def name_of(self, values: Mapping[str, Any]) -> str:
        """The name of a run."""
        words = [axis.label.format(values[axis.name]) for axis in self.axes if axis.name in values]
        return "-".join([*words, f"seed{values['seed']}"])

    def run(self, shell: Shell, run: Run, hardware: str) -> None:
        """Run the steps of one run; RUN.hardware has what it ran on."""
        shell.comment(f"{self.doing} {run.name}")
        shell.say(f"== {run.name}")
        if not shell.printing and not os.path.exists(f"{run.path}.hardware"):
            with open(f"{run.path}.hardware", "w", encoding="utf-8") as file:
                file.write(f"{hardware}\n")
        for step in self.steps:
            step(shell, run)

    def parser(self) -> RecipeParser:
        """The parser of its command line."""
        parser = RecipeParser(self.name, "", self.extra, description=self.summary)
        add_scale(parser, "a smaller setting, for a CPU (the default)")
        add_seeds(parser)
        parser.add_argument("--out", metavar="DIR", help="output folder (default: in runs/)")
        for axis in self.axes:
            metavar = {number_list: '"N …"'}.get(axis.kind, '"VALUE …"')
            parser.add_argument(f"--{axis.name.rstrip('s')}s", type=axis.kind, metavar=metavar, help=axis.help)
        for name, described in self.changes.items():
            parser.add_argument(f"--{name}", **described)
        for name, text in self.switches.items():
            parser.add_argument(f"--{name.replace('_', '-')}", action="store_true", help=text)
        add_numbers(parser, jobs="number of parallel runs (default: 1)")
        return parser
