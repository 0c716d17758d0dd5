"""State tracking beside the recurrent models of today: not in the Feedback Transformer papers (docs/state-tracking.md).

Each run is written to OUT/<model>[-span<S>][-layers<L>]-lr<R>-seed<N>, the results of all to OUT/results.json.
"""

import os
from dataclasses import dataclass
from itertools import product
from typing import Any, Dict, List, Optional, Sequence

from fb_fairseq.errors import UserError
from fb_fairseq.papers.runner.jobs import Jobs
from fb_fairseq.papers.runner.memory_options import composition
from fb_fairseq.papers.runner.options import (
    RecipeParser,
    add_numbers,
    add_scale,
    add_seeds,
    name_among,
    number_list,
    output_folder,
    rate_list,
    seeds_of,
    word_list,
)
from fb_fairseq.papers.runner.session import new_shell, output
from fb_fairseq.papers.runner.settings import words
from fb_fairseq.papers.runner.shell import Shell
from fb_fairseq.papers.state_tracking.architectures import ARCHITECTURES
from fb_fairseq.papers.toy_tasks.common.task import Tracking
from fb_fairseq.papers.toy_tasks.word_problem import GROUPS

FIGURE = "fb_fairseq.papers.experiments.figures.state_tracking"


@dataclass(frozen=True)
class StateTracking:
    """A recipe.

    Attributes:
        name: of the task.
        recipe: of the task's file.
    """

    name: str
    recipe: Tracking

    @property
    def summary(self) -> str:
        """One line for the list of recipes."""
        return self.recipe.summary

    def main(self, argv: Sequence[str], shell: Optional[Shell] = None) -> None:
        """Train and test all models, measure their speed, and draw the comparison.

        Raises:
            UserError: there is a mistake in the command line, or a run has failed.
        """
        args = self.parser().parse(argv)
        for model in args.models:
            if model not in ARCHITECTURES and composition(model) is None:
                known = ", ".join([*ARCHITECTURES, "average", "previous", "layer1"])
                raise UserError(f"--models {model}: unknown; choose from {known}, …")
        small = args.small is not False
        setting = {**(self.recipe.small if small else self.recipe.full)}
        for name in ("group", "updates", "longest"):
            if getattr(args, name, None):
                setting[name] = getattr(args, name)
        shell = shell or new_shell(args.print)
        kind = f"-{setting['group']}" if "group" in setting else ""
        out = output_folder(args.out, f"{self.name}{kind}-{'small' if small else 'full'}", shell)
        with output(shell, self.name, out):
            jobs = Jobs(shell, args.jobs or 1, keep_going=True)
            for seed, rate, layers, span, model in product(
                seeds_of(args), args.lrs or self.recipe.rates, args.layers or [None], args.spans or [None], args.models
            ):
                name = model + ("" if span is None else f"-span{span}") + ("" if layers is None else f"-layers{layers}")
                given = dict(layers=layers, span=span, lr=rate, seed=seed)
                options = {**setting, **{key: value for key, value in given.items() if value is not None}}
                run = Run(os.path.join(out, f"{name}-lr{rate:g}-seed{seed}"), model, self.name, options, args.extra)
                jobs.start(os.path.basename(run.path), run.train)
            jobs.wait(f"their logs in {out}")
            if not args.no_speed:
                self._measure(shell, out, args.models, setting)
            shell.comment("draw the comparison")
            shell.run("python", "-m", FIGURE, out)

    def _measure(self, shell: Shell, out: str, models: Sequence[str], setting: Dict[str, Any]) -> None:
        """Measure the speed of all models, one after the other."""
        names = " ".join(model for model in models if model in ARCHITECTURES)
        path = os.path.join(out, "speed.json")
        if names and not (os.path.exists(path) and not shell.printing):
            shell.comment("measure steps per second")
            options = {"task": self.name, **{key: value for key, value in setting.items() if key != "updates"}}
            command = ("python", "-m", "fb_fairseq", "state-tracking", "speed", "--models", names)
            shell.run(*command, *words(options), "--out", path, what="speed", log=os.path.join(out, "speed.log"))

    def parser(self) -> RecipeParser:
        """The parser of its command line."""
        parser = RecipeParser(self.name, "", "python -m fb_fairseq state-tracking train", description=self.summary)
        add_scale(parser, "small models, for a CPU (the default)")
        add_seeds(parser)
        parser.add_argument("--out", metavar="DIR", help="output folder (default: in runs/)")
        text = f"{', '.join(ARCHITECTURES)}, or memory compositions: average, previous, layer1, … (default: feedback "
        text += "transformer lstm)"
        default = ["feedback", "transformer", "lstm"]
        parser.add_argument("--models", type=word_list, default=default, metavar='"NAME …"', help=text)
        if "group" in self.recipe.small:
            text = f"{', '.join(GROUPS)} (default: {self.recipe.small['group']}; --full: {self.recipe.full['group']})"
            parser.add_argument("--group", type=name_among(GROUPS), metavar="NAME", help=text)
        several = dict(type=number_list, metavar='"N …"')
        text = "learning rates, each a run; the best one of a model on validation data counts (default: "
        text += f"{' '.join(map(str, self.recipe.rates))})"
        parser.add_argument("--lrs", type=rate_list, metavar='"R …"', help=text)
        parser.add_argument("--spans", help="attention spans, each a run", **several)
        parser.add_argument("--layers", help="numbers of layers, each a run", **several)
        parser.add_argument("--no-speed", action="store_true", help="do not measure steps per second at the end")
        add_numbers(
            parser,
            updates="of training",
            longest="training sequences grow to so many elements (recall: pairs)",
            jobs="number of parallel runs (default: 1)",
        )
        return parser


@dataclass
class Run:
    """One model: writes RUN/ and RUN.log."""

    path: str
    model: str
    task: str
    options: Dict[str, Any]
    extra: List[str]

    def train(self, shell: Shell) -> None:
        """Train the model and test it; nothing if it has been."""
        name = os.path.basename(self.path)
        composed = composition(self.model)
        model = "feedback" if composed else self.model
        options = {"task": self.task, "model": model, **self.options}
        if composed:
            options["memory_composition"] = composed["memory_composition"]
        shell.comment(f"train and test {name}")
        shell.say(f"== {name}")
        command = ("python", "-m", "fb_fairseq", "state-tracking", "train", *words(options), "--out", self.path)
        shell.run(*command, *self.extra, what=name, log=f"{self.path}.log")
        if not shell.printing:
            with open(f"{self.path}.log", encoding="utf-8", errors="replace") as file:
                shell.say(f"== {name}: {file.read().strip().splitlines()[-1]}")
