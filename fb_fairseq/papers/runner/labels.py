"""A recipe that trains on a toy task.

A run goes to OUT/<model>, the accuracies of all runs to OUT/results.json; the first stages of a curriculum go to
OUT/<size>-<N>. A sweep over seeds, spans and depths has a folder for each, such as OUT/span8-layers2-seed1.
"""

import argparse
import json
import os
import re
from dataclasses import dataclass, replace
from typing import Any, Dict, Optional, Sequence

from fb_fairseq.errors import UserError, flag
from fb_fairseq.papers.runner import data as prepared
from fb_fairseq.papers.runner.jobs import Jobs
from fb_fairseq.papers.runner.language_modeling import ARCHITECTURES
from fb_fairseq.papers.runner.machines import Machines
from fb_fairseq.papers.runner.memory_options import composition
from fb_fairseq.papers.runner.options import (
    RecipeParser,
    add_numbers,
    add_scale,
    add_seeds,
    number_list,
    output_folder,
    seeds_of,
    whole_number,
    word_list,
)
from fb_fairseq.papers.runner.results import training_cost
from fb_fairseq.papers.runner.session import new_shell, output
from fb_fairseq.papers.runner.settings import Options, words
from fb_fairseq.papers.runner.shell import Shell
from fb_fairseq.papers.runner.text import preprocess
from fb_fairseq.papers.runner.training import Trainer, collect_results, compare, draw_curves, parameters_of
from fb_fairseq.papers.toy_tasks import load
from fb_fairseq.papers.toy_tasks.common.task import Labels, Option, Size, Splits, Switch

MODELS = ("feedback_transformer_lm", "relative_transformer_lm", "streaming_lstm_lm")
FIRST_SPAN = 8  # initial length of adaptive spans, in steps


@dataclass(frozen=True)
class LabelledTask:
    """A recipe.

    Attributes:
        name: of the task in ``python -m fb_fairseq synthetic-tasks``.
        recipe: of the task's file.
    """

    name: str
    recipe: Labels

    @property
    def summary(self) -> str:
        """One line for the list of recipes."""
        return self.recipe.summary

    def data_options(self) -> Dict[str, Option]:
        """The options of its data: numbers of sequences, and those of the task."""
        found: Dict[str, Option] = {split: Size(1, "") for split in Splits._fields}
        for name, option in load(self.name).TASK.options.items():
            found.update({each: option for each in (name, option.test_name, option.training_name) if each})
        return found

    def main(self, argv: Sequence[str], shell: Optional[Shell] = None) -> None:
        """Generate the data, train and evaluate all models, and draw their learning curves.

        Args:
            argv: the command line.
            shell: that of a recipe of which this one is a part.

        Raises:
            UserError: there is a mistake in it, or a run has failed.
        """
        args = self.parser().parse(argv)
        for model in args.models:
            if composition(model) is None and not model.startswith(ARCHITECTURES):
                raise UserError(
                    f"--models {model}: unknown; give architectures, such as "
                    '"feedback_transformer_lm relative_transformer_lm streaming_lstm_lm", or memory compositions'
                )
        if args.curriculum and not self.recipe.graded:
            raise UserError(f"--curriculum: {self.name} has none; only algorithmic, copy, reverse and counting do")
        small = args.small is not False
        shell = shell or new_shell(args.print)
        seeds = seeds_of(args, (1, 2, 3) if args.sweep else (1,))
        if args.sweep or max(map(len, (seeds, args.span or [], args.layers or []))) > 1:
            default = f"{self.name}-sweep" if args.sweep else f"{self.name}-{'small' if small else 'full'}"
            self.sweep(args, shell, seeds, output_folder(args.out, default, shell))
            return
        if args.jobs:
            raise UserError(f"--jobs {args.jobs}: only with several --seeds, --spans or --layers")
        default = f"{self.name}-{'small' if small else 'full'}-seed{seeds[0]}"
        out = output_folder(args.out, default, shell)
        span, layers = ((given or [None])[0] for given in (args.span, args.layers))
        with output(shell, self.name, out):
            Run(self, args, out, args.models, seeds[0], span, layers).run(shell)
            compare(shell, out)

    def parser(self) -> RecipeParser:
        """The parser of its command line."""
        parser = RecipeParser(self.name, "", "fairseq-train", description=self.summary)
        add_scale(parser, "small models, for a CPU (the default)")
        add_seeds(parser)
        parser.add_argument("--out", metavar="DIR", help="output folder (default: in runs/)")
        text = "architectures, or memory compositions: average, same-and-lower, layer1, …"
        parser.add_argument("--models", type=word_list, default=list(MODELS), metavar='"NAME …"', help=text)
        several = dict(type=number_list, metavar='"N …"')
        parser.add_argument("--span", "--spans", help="attention spans in steps, each a run", **several)
        parser.add_argument("--layers", "--depths", help="numbers of layers, each a run", **several)
        parser.add_argument("--fixed-span", action="store_true", help="long spans do not grow in training (small only)")
        parser.add_argument("--sweep", action="store_true", help="seeds 1 to 3 by default, and a folder for each run")
        add_numbers(parser, jobs="number of parallel runs of a sweep (default: 1)", updates="of training")
        text = (
            f"sizes of a curriculum's stages ({flag(self.recipe.graded)})" if self.recipe.graded else argparse.SUPPRESS
        )
        parser.add_argument("--curriculum", type=number_list, metavar='"N …"', help=text)
        data = parser.add_argument_group("data", f"options of python -m fb_fairseq synthetic-tasks {self.name}")
        for name, option in self.data_options().items():
            if isinstance(option, Switch):
                data.add_argument(flag(name), action="store_true")
            elif isinstance(option, Size):
                data.add_argument(flag(name), type=whole_number, metavar="N")
            else:
                data.add_argument(flag(name), metavar="WORD")
        return parser

    def sweep(self, args: argparse.Namespace, shell: Shell, seeds: Sequence[int], out: str) -> None:
        """Run the task with several seeds, spans and depths, and write a table and figures of all runs."""
        with output(shell, self.name, out):
            jobs = Jobs(shell, args.jobs or 1, keep_going=True)
            for layers in args.layers or [None]:
                for span in args.span or [None]:
                    for seed in seeds:
                        name = "" if span is None else f"span{span}-"
                        name += ("" if layers is None else f"layers{layers}-") + f"seed{seed}"
                        # LSTMs have no span: they are trained with the first one only.
                        first = not args.span or span == args.span[0]
                        models = [model for model in args.models if first or "lstm" not in model]
                        if models:
                            run = Run(self, args, os.path.join(out, name), models, seed, span, layers)
                            jobs.start(name, lambda shell, run=run, name=name: run.of_sweep(shell, name))
            jobs.wait()
            shell.comment("summarise")
            shell.run("python", "-m", "fb_fairseq.papers.experiments.figures.synthetic_tasks", out)
            compare(shell, out)


@dataclass
class Run:
    """One seed of a task: all models on the same data."""

    task: LabelledTask
    args: argparse.Namespace
    out: str
    models: Sequence[str]
    seed: int
    span: Optional[int] = None
    layers: Optional[int] = None

    def __post_init__(self):
        args = self.args
        self.small = args.small is not False
        setting = self.task.recipe.small if self.small else self.task.recipe.full
        given = dict(updates=args.updates, span=self.span, layers=self.layers)
        self.setting = replace(setting, **{name: value for name, value in given.items() if value})
        self.sequences = {**setting.sequences}
        for name in self.task.data_options():
            if getattr(args, name):
                self.sequences[name] = getattr(args, name)
        self.machines = Machines()

    def of_sweep(self, shell: Shell, name: str) -> None:
        """Run it as a part of a sweep."""
        shell.comment(f"== {name}")
        with output(shell, self.task.name, self.out):
            self.run(shell)

    def run(self, shell: Shell) -> None:
        """Generate the data, and train and evaluate all models."""
        trainer = Trainer(self.out, self.machines, self.args.extra)
        self.machines.look(shell)
        if self.setting.streams % self.machines.processes:
            raise UserError(
                f"{self.setting.streams} streams cannot be divided among {self.machines.processes} GPUs; use fewer "
                "(CUDA_VISIBLE_DEVICES)"
            )
        data, graded = os.path.join(self.out, "data"), self.task.recipe.graded
        self._prepare(shell, data, self.sequences, {})
        dictionaries = {
            f"{option}dict": os.path.join(data, f"dict.{side}.txt")
            for option, side in (("src", "input"), ("tgt", "label"))
        }
        stages = []
        for stage in self.args.curriculum or []:
            folder = os.path.join(self.out, f"{graded}-{stage}")
            if not shell.printing:
                os.makedirs(folder, exist_ok=True)
            self._prepare(shell, os.path.join(folder, "data"), {**self.sequences, graded: stage}, dictionaries)
            stages.append(folder)
        for model in self.models:
            self._train_and_evaluate(shell, trainer, model, stages)
        collect_results(shell, self.out)
        draw_curves(shell, trainer, "accuracy", stages)

    def _prepare(self, shell: Shell, data: str, sequences: Options, dictionaries: Options) -> None:
        task = self.task.name

        def generate(shell: Shell, source: str, folder: str) -> None:
            command = ("python", "-m", "fb_fairseq", "synthetic-tasks", task, "--seed", self.seed, *words(sequences))
            shell.run(*command, "--out", folder, what="generating the data")
            options = dict(source_lang="input", target_lang="label", **dictionaries)
            preprocess(shell, folder, ["train", "valid", "test"], folder, options)

        setting = f"{task} --seed {self.seed} {' '.join(words(sequences))}"
        prepared.prepare_data(shell, os.path.dirname(data), data, setting, "", generate)

    def options(self, model: str) -> Dict[str, Any]:
        """The options of a model's training."""
        setting = self.setting
        composed = composition(model)
        options = {
            **dict(task="streaming_lm", labels=True, criterion="lm_loss"),
            "arch": "feedback_transformer_lm" if composed else model,
            **setting.model,
            **dict(decoder_layers=setting.layers, optimizer="adam"),
            **setting.training,
            **setting.schedule(),
        }
        if "lstm" in model:
            options.update(setting.lstm)
        else:
            options.update(setting.attention)
            if setting.decay and setting.span > FIRST_SPAN and not self.args.fixed_span:
                options.update(
                    adaptive_span=True, adaptive_span_init=FIRST_SPAN / setting.span, adaptive_span_ramp=FIRST_SPAN
                )
            options["attention_span"] = setting.span
        if model == "feedback_transformer_lm":
            options.update(setting.feedback)
        return {
            **options,
            **(composed or {}),
            "batch_size": setting.streams // self.machines.processes,
            **dict(best_checkpoint_metric="accuracy", maximize_best_checkpoint_metric=True, keep_interval_updates=1),
        }

    def _train_and_evaluate(self, shell: Shell, trainer: Trainer, model: str, stages: Sequence[str]) -> None:
        """Train one model, evaluate its best checkpoint and write the results to OUT/<model>.json.

        Each stage of a curriculum starts from the best checkpoint of the one before it.
        """
        updates, run = self.setting.updates, os.path.join(self.out, model)
        options, start = self.options(model), {}
        for folder in [*stages, self.out]:
            stage = f", {self.task.recipe.graded} {folder.rsplit('-', 1)[1]}" if folder != self.out else ""
            shell.comment(f"train {model}{stage}")
            path = os.path.join(folder, model)
            every = updates // 5 + 1
            data = os.path.join(folder, "data")
            trainer.train(shell, path, data, {**options, **start}, updates=updates, every=every, seed=self.seed)
            start = {"finetune_from_model": os.path.join(path, "checkpoint_best.pt")}
        shell.comment(f"evaluate {model}")
        command = ["python", "-m", "fb_fairseq", "evaluate-labels", os.path.join(self.out, "data")]
        command += ["--path", os.path.join(run, "checkpoint_best.pt"), *self.machines.cpu, "--out", f"{run}.accuracy"]
        shell.run(*command, what="evaluation", log=f"{run}.eval")
        if not shell.printing:
            self._write_results(shell, model, stages)

    def _write_results(self, shell: Shell, model: str, stages: Sequence[str]) -> None:
        run, setting = os.path.join(self.out, model), self.setting
        data = " ".join(words(self.sequences))
        if stages:
            data += f" --curriculum {','.join(map(str, self.args.curriculum))}"
        result: Dict[str, Any] = {"recipe": self.task.name, "small": self.small, "model": model, "data": data}
        with open(f"{run}.accuracy", encoding="utf-8") as file:
            result.update(json.load(file))
        with open(f"{run}.log", encoding="utf-8", errors="replace") as file:
            validated = re.findall(r'"valid_accuracy": "([\d.]+)"', file.read())
        result["dev_accuracy"] = max(map(float, validated), default=None)
        result.update(parameters=parameters_of(run), layers=setting.layers, updates=setting.updates, seed=self.seed)
        result.update(training_cost(run))
        for folder in stages:
            cost = training_cost(os.path.join(folder, model))
            for name in ("seconds", "num_updates"):
                result[name] += cost[name]
        if "lstm" not in model:
            result["attention_span"] = setting.span
        with open(f"{run}.json", "w", encoding="utf-8") as file:
            json.dump(result, file)
        accuracies = f"{result['accuracy']:.2f} % of the labels, {result['sequence_accuracy']:.2f} % of the sequences"
        shell.say(f"== {model}: {accuracies} are right")
