"""Recipes that train on a toy task. A run goes to OUT/<model>, the accuracies of all runs to OUT/results.json; the
first stages of a curriculum go to OUT/<size>-<N>. With several seeds, spans or depths, each has a folder, such as
OUT/span8-layers2-seed1."""

import argparse
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from fb_fairseq.errors import UserError, flag
from fb_fairseq.papers.runner import results, sweep
from fb_fairseq.papers.runner.data import prepare_data, preprocess
from fb_fairseq.papers.runner.language_modeling import ARCHITECTURES, best
from fb_fairseq.papers.runner.options import RecipeParser, number_list, seeds_of, whole_number, word_list
from fb_fairseq.papers.runner.settings import Options, composition, words
from fb_fairseq.papers.runner.shell import Shell, read
from fb_fairseq.papers.runner.sweep import Call, Experiment
from fb_fairseq.papers.runner.training import Trainer, draw_curves
from fb_fairseq.papers.toy_tasks import load
from fb_fairseq.papers.toy_tasks.common import FULL, SMALL, SPLITS, Labels, Option, Setting, Size

MODELS = ("feedback_transformer_lm", "relative_transformer_lm", "streaming_lstm_lm")
FIRST_SPAN = 8  # initial length of adaptive spans, in steps


@dataclass(frozen=True)
class TaskRun(sweep.Run):
    """One seed, span and depth of a task, in a folder: all models on the same data."""

    models: Sequence[str] = ()
    setting: Setting = None
    sequences: Options = None  # options of the data


@dataclass(frozen=True)
class LabelledTask(Experiment):
    """A recipe: the task of this name in ``python -m fb_fairseq synthetic-tasks``, and the recipe of its file."""

    name: str
    recipe: Labels
    corpus = ""
    extra = "fairseq-train"
    small_first = keep_going = True
    summary = property(lambda self: self.recipe.summary)
    small = property(lambda self: SMALL.changed(**self.recipe.small))
    full = property(lambda self: FULL.changed(**self.recipe.full))

    def data_options(self) -> dict[str, Option]:
        """The options of its data: numbers of sequences, and those of the task."""
        found: dict[str, Option] = {split: Size(1, "") for split in SPLITS}
        for name, option in load(self.name).TASK.options.items():
            found.update({each: option for each in option.names(name)})
        return found

    def add_options(self, parser: RecipeParser) -> None:
        parser.add_seeds()
        text = "architectures, or memory compositions: average, same-and-lower, layer1, …"
        parser.add_argument("--models", type=word_list, default=list(MODELS), metavar='"NAME …"', help=text)
        several = dict(type=number_list, metavar='"N …"')
        parser.add_argument("--span", "--spans", help="attention spans in steps, each a run", **several)
        parser.add_argument("--layers", "--depths", help="numbers of layers, each a run", **several)
        parser.add_argument("--fixed-span", action="store_true", help="long spans do not grow in training (small only)")
        parser.add_argument("--sweep", action="store_true", help="seeds 1 to 3 by default, and a folder for each run")
        parser.add_numbers(jobs="number of parallel runs of a sweep (default: 1)", updates="of training")
        graded = self.recipe.graded
        text = f"sizes of a curriculum's stages ({flag(graded)})" if graded else argparse.SUPPRESS
        parser.add_argument("--curriculum", type=number_list, metavar='"N …"', help=text)
        data = parser.add_argument_group("data", f"options of python -m fb_fairseq synthetic-tasks {self.name}")
        for name, option in self.data_options().items():
            if option.default is False:
                data.add_argument(flag(name), action="store_true")
            elif isinstance(option, Size):
                data.add_argument(flag(name), type=whole_number, metavar="N")
            else:
                data.add_argument(flag(name), metavar="WORD")

    def seeds(self, call: Call) -> list[int]:
        """The seeds of all runs."""
        return seeds_of(call.args, (1, 2, 3) if call.args.sweep else (1,))

    def in_folders(self, call: Call) -> bool:
        """Whether each run has a folder in the output folder; otherwise there is one run, which is in it."""
        args = call.args
        return args.sweep or max(map(len, (self.seeds(call), args.span or [], args.layers or []))) > 1

    def folder(self, call: Call) -> str:
        size = "small" if call.small else "full"
        if call.args.sweep:
            return f"{self.name}-sweep"
        return f"{self.name}-{size}" + ("" if self.in_folders(call) else f"-seed{self.seeds(call)[0]}")

    def runs(self, call: Call) -> Iterator[TaskRun]:
        args, several = call.args, self.in_folders(call)
        for model in args.models:
            if composition(model) is None and not model.startswith(ARCHITECTURES):
                raise UserError(
                    f"--models {model}: unknown; give architectures, such as "
                    '"feedback_transformer_lm relative_transformer_lm streaming_lstm_lm", or memory compositions'
                )
        if args.curriculum and not self.recipe.graded:
            raise UserError(f"--curriculum: {self.name} has none; only algorithmic, copy, reverse and counting do")
        if args.jobs and not several:
            raise UserError(f"--jobs {args.jobs}: only with several --seeds, --spans or --layers")
        sequences = {**call.setting.sequences}
        sequences.update({name: value for name in self.data_options() if (value := getattr(args, name))})
        for layers, span, seed in product(args.layers or [None], args.span or [None], self.seeds(call)):
            named = {"span": span, "layers": layers, "seed": seed}
            name = "-".join(f"{axis}{value}" for axis, value in named.items() if value is not None)
            # LSTMs have no span: they are trained with the first one only.
            first = not args.span or span == args.span[0]
            models = [model for model in args.models if first or "lstm" not in model]
            given = {"updates": args.updates, "span": span, "layers": layers}
            setting = replace(call.setting, **{name: value for name, value in given.items() if value})
            path = os.path.join(call.out, name) if several else call.out
            if models:
                values = {"seed": seed}
                yield TaskRun(path, values, extra=args.extra, models=models, setting=setting, sequences=sequences)

    def run(self, call: Call, shell: Shell, run: TaskRun) -> None:
        """Generate the data, and train and evaluate all models."""
        if run.path == call.out:
            self.run_models(call, shell, run)
            return
        shell.comment(f"== {run.name}")
        with shell.writing(self.name, run.path):
            self.run_models(call, shell, run)

    def run_models(self, call: Call, shell: Shell, run: TaskRun) -> None:
        """Run all models in the run's folder."""
        machines, graded, out = call.machines, self.recipe.graded, run.path
        machines.look(shell)
        if run.setting.streams % machines.processes:
            raise UserError(
                f"{run.setting.streams} streams do not divide among {machines.processes} GPUs; use fewer "
                "(CUDA_VISIBLE_DEVICES)"
            )
        data = os.path.join(out, "data")
        self.generate(shell, data, run, run.sequences, {})
        dictionaries = dict(srcdict=os.path.join(data, "dict.input.txt"), tgtdict=os.path.join(data, "dict.label.txt"))
        stages = []
        for stage in call.args.curriculum or []:
            stages.append(os.path.join(out, f"{graded}-{stage}"))
            shell.do(os.makedirs, stages[-1], exist_ok=True)
            sequences = {**run.sequences, graded: stage}
            self.generate(shell, os.path.join(stages[-1], "data"), run, sequences, dictionaries)
        for model in run.models:
            self.train(call, shell, run, model, stages)
            self.evaluate(call, shell, run, model, stages)
        shell.do(results.collect_results, shell, out)
        draw_curves(shell, out, "accuracy", stages)

    def generate(self, shell: Shell, data: str, run: TaskRun, sequences: Options, dictionaries: Options) -> None:
        """Generate sequences, and binarise them in the folder ``data``."""
        given = ["--seed", str(run.values["seed"]), *words(sequences)]

        def write(shell: Shell, source: str, folder: str) -> None:
            command = ("python", "-m", "fb_fairseq", "synthetic-tasks", self.name, *given)
            shell.run(*command, "--out", folder, what="generating the data")
            options = dict(source_lang="input", target_lang="label", **dictionaries)
            preprocess(shell, folder, ["train", "valid", "test"], folder, options)

        prepare_data(shell, os.path.dirname(data), data, " ".join([self.name, *given]), "", write)

    def options(self, call: Call, run: TaskRun, model: str) -> dict[str, Any]:
        """The options of a model's training."""
        setting, composed = run.setting, composition(model)
        options = {
            "task": "streaming_lm",
            "labels": True,
            "criterion": "lm_loss",
            "arch": "feedback_transformer_lm" if composed else model,
            **setting.model,
            "decoder_layers": setting.layers,
            "optimizer": "adam",
            **setting.training,
            **setting.schedule(),
        }
        if "lstm" in model:
            options.update(setting.lstm)
        else:
            options.update(setting.attention)
            if setting.decay and setting.span > FIRST_SPAN and not call.args.fixed_span:
                start = FIRST_SPAN / setting.span
                options.update(adaptive_span=True, adaptive_span_init=start, adaptive_span_ramp=FIRST_SPAN)
            options["attention_span"] = setting.span
        if model == "feedback_transformer_lm":
            options.update(setting.feedback)
        return {
            **options,
            **(composed or {}),
            "batch_size": setting.streams // call.machines.processes,
            "best_checkpoint_metric": "accuracy",
            "maximize_best_checkpoint_metric": True,
            "keep_interval_updates": 1,
        }

    def train(self, call: Call, shell: Shell, run: TaskRun, model: str, stages: Sequence[str]) -> None:
        """Train one model. Each stage of a curriculum starts from the best checkpoint of the one before it."""
        options, updates = self.options(call, run, model), run.setting.updates
        trainer = Trainer(run.path, call.machines, run.extra)
        for folder in [*stages, run.path]:
            stage = f", {self.recipe.graded} {folder.rsplit('-', 1)[1]}" if folder != run.path else ""
            shell.comment(f"train {model}{stage}")
            path, data = os.path.join(folder, model), os.path.join(folder, "data")
            schedule = dict(updates=updates, every=updates // 5 + 1, seed=run.values["seed"])
            trainer.train(shell, path, data, options, **schedule)
            options = {**options, "finetune_from_model": best(path)}

    def evaluate(self, call: Call, shell: Shell, run: TaskRun, model: str, stages: Sequence[str]) -> None:
        """Evaluate the best checkpoint of a model, and write the results to OUT/<model>.json."""
        path, setting = os.path.join(run.path, model), run.setting
        shell.comment(f"evaluate {model}")
        command = ["python", "-m", "fb_fairseq", "evaluate-labels", os.path.join(run.path, "data"), "--path"]
        command += [best(path), *call.machines.cpu, "--out", f"{path}.accuracy"]
        shell.run(*command, what="evaluation", log=f"{path}.eval")
        data = " ".join(words(run.sequences))
        if stages:
            data += f" --curriculum {','.join(map(str, call.args.curriculum))}"
        identity = {"recipe": self.name, "small": call.small, "model": model, "data": data, "layers": setting.layers}
        identity.update(updates=setting.updates, seed=run.values["seed"])
        identity.update({} if "lstm" in model else {"attention_span": setting.span})
        shell.do(write_results, shell, path, identity, [os.path.join(folder, model) for folder in stages])

    def finish(self, call: Call) -> None:
        shell, out = call.shell, call.out
        if self.in_folders(call):
            shell.comment("summarise")
            shell.run("python", "-m", "fb_fairseq.papers.experiments.figures.synthetic_tasks", out)
        results.compare(shell, out)


def write_results(shell: Shell, run: str, identity: Mapping[str, Any], stages: Sequence[str]) -> None:
    """Write RUN.json from RUN.accuracy, which evaluate-labels has written, and the logs of training."""
    result = {**identity, **json.loads(read(f"{run}.accuracy"))}
    validated = re.findall(r'"valid_accuracy": "([\d.]+)"', read(f"{run}.log"))
    result["dev_accuracy"] = max(map(float, validated), default=None)
    result.update(parameters=results.parameters_of(run), **results.training_cost(run))
    for cost in map(results.training_cost, stages):
        result.update({name: result[name] + cost[name] for name in ("seconds", "num_updates")})
    results.write(run, result)
    accuracies = f"{result['accuracy']:.2f} % of the labels, {result['sequence_accuracy']:.2f} % of the sequences"
    shell.say(f"== {os.path.basename(run)}: {accuracies} are right")
