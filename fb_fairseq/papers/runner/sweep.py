"""The engine of all experiments: combinations of values are runs, and each run goes through the same steps. An
``Experiment`` says which runs there are, what the steps do, and what is drawn when all runs have ended; a ``Call`` is
one command line of it. ``Sweep`` is an experiment that is data alone: axes, steps and figures. The files of a run are
OUT/<its values>.json, .log, …; OUT/results.json has all results."""

import argparse
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

from fb_fairseq.papers.runner.data import prepare_data
from fb_fairseq.papers.runner.machines import Machines, find_machines
from fb_fairseq.papers.runner.options import RecipeParser, names_among, number_list, output_folder, seeds_of
from fb_fairseq.papers.runner.processes import Jobs
from fb_fairseq.papers.runner.settings import Options
from fb_fairseq.papers.runner.shell import Shell, new_shell
from fb_fairseq.papers.runner.training import Trainer


@dataclass(frozen=True)
class Run:
    """A combination of values."""

    path: str  # of its files, without their ending
    values: Mapping[str, Any]  # by axis, and the ``seed``
    options: Options = field(default_factory=dict)  # of all runs, from the setting and the command line
    extra: Sequence[str] = ()  # what follows ``--`` on the command line
    suffix: str = ""  # how the name goes on after the model's: its number of layers, and its seed unless this is 1

    @property
    def name(self) -> str:
        """The values as one word."""
        return os.path.basename(self.path)

    @property
    def log(self) -> str:
        """The file for the output of its commands."""
        return f"{self.path}.log"


class Experiment:
    """An experiment, or recipe."""

    name: str  # in the list of recipes
    summary: str
    corpus: str  # what DATA is; empty: it takes none
    extra: str  # the command that gets what follows ``--``
    small: Any  # the setting for a CPU; without it or ``full``, there is no ``--small``
    full: Any  # the papers' setting
    small_first = False  # whether the small setting is the default
    steps: Sequence[str] = ()  # the names of those that ``--steps`` chooses
    on_all_machines: Sequence[str] = ("train",)  # those of them in which all machines take part
    keep_going = False  # whether a run that fails leaves the others running

    def main(self, argv: Sequence[str], shell: Shell | None = None) -> None:
        """Run what a command line asks for. The shell may be that of a recipe of which this one is a part."""
        args = self.parser().parse(argv)
        Call(self, shell or new_shell(args.print), args).run()

    def parser(self) -> RecipeParser:
        """The parser of its command line."""
        parser = RecipeParser(self.name, self.corpus, self.extra, description=self.summary)
        if self.small and self.full:  # the last of these counts
            text = "small models, for a CPU" + " (the default)" * self.small_first
            parser.add_argument("--small", action="store_true", default=None, help=text)
            parser.add_argument("--full", dest="small", action="store_false", default=None, help="the papers' setting")
        parser.add_argument("--out", metavar="DIR", help="output folder (default: in runs/)")
        self.add_options(parser)
        return parser

    def add_options(self, parser: RecipeParser) -> None:
        """Add the options of experiments whose steps can be chosen."""
        steps = " ".join(self.steps)
        parser.add_argument("--steps", type=names_among(self.steps), default=self.steps, metavar=f'"{steps}"')
        parser.add_argument("--layers", type=number_list, metavar='"N …"', help="numbers of layers, of the decoder")
        parser.add_seeds()
        parser.add_numbers(
            jobs="number of parallel runs (default: 1)",
            updates="of training",
            update_freq="parts of an update, one after the other, to save memory (default: 1)",
            nodes="number of machines; each runs this command (default: 1, or those of a Slurm step)",
        )
        parser.add_argument("--node-rank", metavar="N", help="which machine this is, from 0")
        parser.add_argument("--rendezvous", metavar="HOST:PORT", help="an address of the machine with --node-rank 0")

    def folder(self, call: "Call") -> str:
        """The default of ``--out``, in runs/."""
        return self.name + ("-small" if call.small and self.full else "")

    def runs(self, call: "Call") -> Iterator[Run]:
        """All runs of a call, in their order."""
        raise NotImplementedError

    def begin(self, call: "Call") -> None:
        """Prepare the data of all runs, if they have the same."""

    def waits(self, run: Run) -> bool:
        """Whether a run starts from the results of another one."""
        return False

    def run(self, call: "Call", shell: Shell, run: Run) -> None:
        """Run the chosen steps, methods of these names."""
        for step in self.steps:
            if step in call.steps and step != "prepare":
                getattr(self, step)(call, shell, run)

    def finish(self, call: "Call") -> None:
        """Collect the results, and draw the figures."""


class Call:
    """One command line of an experiment."""

    def __init__(self, recipe: Experiment, shell: Shell, args: argparse.Namespace):
        self.recipe, self.shell, self.args = recipe, shell, args
        self.small = (recipe.small_first or not recipe.full) if args.small is None else args.small
        self.setting = recipe.small if self.small else recipe.full
        self.steps = list(args.steps if recipe.steps else ())  # (some toy tasks have another --steps)
        self.update_freq: int = getattr(args, "update_freq", None) or 1
        self.source = shell.data(args.data, "prepare" in self.steps) if recipe.corpus else ""
        self.out = output_folder(args.out, recipe.folder(self), shell.root)
        self.data = os.path.join(self.out, "data")
        nodes = [getattr(args, name, None) for name in ("nodes", "node_rank", "rendezvous")]
        self.machines = find_machines(*nodes) if "nodes" in args else Machines()
        if self.machines.node_rank:
            self.steps = [step for step in self.steps if step in recipe.on_all_machines]
        self.trainer = Trainer(self.out, self.machines, args.extra)
        self.runs = list(recipe.runs(self))

    @property
    def first(self) -> bool:
        """Whether this is the first machine, which goes through all steps."""
        return self.machines.node_rank == 0

    def run(self) -> None:
        """Run everything."""
        recipe, shell, args = self.recipe, self.shell, self.args
        with shell.writing(recipe.name, self.out):
            recipe.begin(self)
            keep_going = recipe.keep_going and len(self.runs) > 1
            jobs = Jobs(shell, getattr(args, "jobs", None) or 1, keep_going)
            for run in self.runs:
                if recipe.waits(run):
                    jobs.wait()
                jobs.start(run.name, partial(recipe.run, self, run=run))
            jobs.wait(f"their logs in {self.out}" if keep_going else "the lines with their names above")
            if self.first:
                recipe.finish(self)

    def prepare(self, dictionary: str) -> None:
        """Prepare the data, which have this dictionary, if this is asked for, and look at the machines."""
        shell, small = self.shell, self.small
        if "prepare" in self.steps:
            setting = self.recipe.name + (" --small" if small else "")
            write = partial(self.recipe.prepare, small=small)
            prepare_data(shell, self.out, self.data, setting, self.source, write)
        if self.first:
            shell.need(os.path.join(self.data, dictionary), "prepare")
        self.machines.look(shell)
        shell.do(self.machines.check_jobs, self.args.jobs)


@dataclass(frozen=True)
class Axis:
    """A value in which runs differ."""

    name: str  # such as ``span``; the experiment's option is ``--spans``
    help: str
    small: Sequence[Any] = ()  # values; empty: runs do not have the value, unless the option is given
    full: Sequence[Any] = ()
    kind: Callable[[str], list] = number_list  # parses the option's values
    label: str = "{}"  # how the value is written in a run's name
    # Whether a run with these other values has this one, too; else it is run once.
    applies: Callable[[Mapping[str, Any]], bool] = lambda values: True

    @property
    def option(self) -> str:
        """The name of the option's value."""
        return f"{self.name.rstrip('s')}s"


@dataclass(frozen=True)
class Sweep(Experiment):
    """An experiment that is data alone."""

    name: str
    summary: str
    extra: str
    doing: str  # the steps in words
    axes: Sequence[Axis]  # in the order of a run's name; the last one varies most slowly, but for the seed
    each: Sequence[Callable[[Shell, Run], None]]  # the steps of a run, one after the other
    figures: Sequence[Callable[[Call], None]]  # drawn when all runs have ended
    small: Options
    # Small and full: options of every run on a CPU, the default, and of the papers' setting, or for a GPU.
    full: Options
    seeds: Sequence[int] = (1,)  # of the full setting
    # Options of the command line that replace those of the setting, as argparse describes them.
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # Further options of the command line that are on or off, with their help.
    switches: Mapping[str, str] = field(default_factory=dict)
    variant: str = ""  # the option whose value is a part of the output folder's name
    corpus = ""
    small_first = keep_going = True

    def add_options(self, parser: RecipeParser) -> None:
        parser.add_seeds()
        for axis in self.axes:
            metavar = '"N …"' if axis.kind is number_list else '"VALUE …"'
            parser.add_argument(f"--{axis.option}", type=axis.kind, metavar=metavar, help=axis.help)
        for name, described in self.changes.items():
            parser.add_argument(f"--{name.replace('_', '-')}", **described)
        for name, text in self.switches.items():
            parser.add_argument(f"--{name.replace('_', '-')}", action="store_true", help=text)
        parser.add_numbers(jobs="number of parallel runs (default: 1)")

    def options(self, call: Call) -> Options:
        """The options of all runs."""
        return {**call.setting, **{name: value for name in self.changes if (value := getattr(call.args, name))}}

    def folder(self, call: Call) -> str:
        variant = [self.options(call)[self.variant]] if self.variant else []
        return "-".join([self.name, *variant, "small" if call.small else "full"])

    def runs(self, call: Call) -> Iterator[Run]:
        size, options, seen = "small" if call.small else "full", self.options(call), []
        lists = [getattr(call.args, axis.option) or getattr(axis, size) or [None] for axis in self.axes]
        for seed, *others in product(seeds_of(call.args, (1,) if call.small else self.seeds), *reversed(lists)):
            chosen = {axis.name: value for axis, value in zip(self.axes, reversed(others)) if value is not None}
            applying = [axis for axis in self.axes if axis.name in chosen and axis.applies(chosen)]
            words = [*(axis.label.format(chosen[axis.name]) for axis in applying), f"seed{seed}"]
            path = os.path.join(call.out, "-".join(words))
            if path not in seen:  # once for all values of an axis that does not apply
                seen.append(path)
                values = {**{axis.name: chosen[axis.name] for axis in applying}, "seed": seed}
                yield Run(path, values, options, call.args.extra)

    def begin(self, call: Call) -> None:
        call.shell.do(call.machines.look, call.shell)

    def run(self, call: Call, shell: Shell, run: Run) -> None:
        """Run the steps; RUN.hardware has what they ran on."""
        shell.comment(f"{self.doing} {run.name}")
        shell.say(f"== {run.name}")
        shell.do(call.machines.describe, run.path)
        for step in self.each:
            step(shell, run)

    def finish(self, call: Call) -> None:
        for draw in self.figures:
            draw(call)
