"""Recipes that train language models on streams of text.

The steps are prepare, train, finetune, evaluate and generate. Run a recipe again to resume; finished steps are skipped.
"""

import argparse
import os
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, List, Optional, Sequence

from fb_fairseq.errors import UserError
from fb_fairseq.papers.runner.call import Call
from fb_fairseq.papers.runner.finetuning import start_over, started_from, updates_of
from fb_fairseq.papers.runner.options import (
    RecipeParser,
    add_nodes,
    add_numbers,
    add_scale,
    add_seeds,
    learning_rate,
    names_among,
    number_list,
    seeds_of,
    word_list,
)
from fb_fairseq.papers.runner.session import new_shell, output
from fb_fairseq.papers.runner.settings import Model, Options, Scale, Training, words
from fb_fairseq.papers.runner.shell import Shell
from fb_fairseq.papers.runner.training import (
    collect_results,
    compare,
    draw_against,
    draw_curves,
)

STEPS = ("prepare", "train", "finetune", "evaluate", "generate")
ARCHITECTURES = ("feedback_transformer_lm", "relative_transformer_lm", "all_attention_lm", "streaming_lstm_lm")
SHOWN = 5  # names in a message


@dataclass(frozen=True)
class Run:
    """One model to train, with everything that it depends on.

    Attributes:
        name: of its files in the recipe's folder.
        suffix: how the name goes on after the model's: its number of layers, and its seed unless this is 1.
        model: its name in the recipe.
        layers: None: the architecture's.
        options: that make up the model, of ``fairseq-train``.
    """

    name: str
    suffix: str
    model: str
    layers: Optional[int]
    seed: int
    described: Model
    training: Training
    options: Options


@dataclass(frozen=True)
class LanguageModeling:
    """A recipe.

    Attributes:
        name: of its output folder, runs/NAME or runs/NAME-small.
        summary: one line for the list of recipes.
        corpus: what DATA is; empty: the recipe takes none.
        prepare: a function that checks the user's copy of the corpus and binarises it: ``prepare(shell, source, folder,
            small)``. Its other files go to the folder, too.
        metric: of the learning curves: bpb, loss or ppl.
        result: of the figure against the number of layers: bits_per_token or perplexity.
        prompt: text that the step generate continues.
        full: the papers' setting.
        small: a setting for a CPU. With one of the two, there is no ``--small``.
        figures: functions that draw figures of the results, ``draw(shell, out)``, after the step evaluate.
        after: functions that draw further figures, ``after(shell, out, runs)``, if the step train was asked for.
    """

    name: str
    summary: str
    corpus: str
    prepare: Callable[[Shell, str, str, bool], None]
    metric: str
    prompt: str = "The"
    full: Optional[Scale] = None
    small: Optional[Scale] = None
    result: str = "bits_per_token"
    figures: Sequence[Callable[[Shell, str], None]] = field(default_factory=tuple)
    after: Sequence[Callable[[Shell, str, List[Run]], None]] = field(default_factory=tuple)

    def main(self, argv: Sequence[str], shell: Optional[Shell] = None) -> None:
        """Run the steps that the command line names, for every seed, number of layers and model.

        Args:
            argv: the command line.
            shell: that of a recipe of which this one is a part.

        Raises:
            UserError: there is a mistake in it or in the data, or a step has failed.
        """
        args = self.parser().parse(argv)
        LanguageModelingCall(self, shell or new_shell(args.print), args).run()

    def parser(self) -> RecipeParser:
        """The parser of its command line."""
        parser = RecipeParser(self.name, self.corpus, "fairseq-train", description=self.summary)
        if self.full and self.small:
            add_scale(parser, "small models, for a CPU")
        else:
            parser.set_defaults(small=self.small is not None)
        parser.add_argument("--out", metavar="DIR", help="output folder (default: runs/NAME or runs/NAME-small)")
        steps = " ".join(STEPS)
        parser.add_argument("--steps", type=names_among(STEPS), default=list(STEPS), metavar=f'"{steps}"')
        parser.add_argument("--models", type=word_list, metavar='"NAME …"', help="models to train")
        parser.add_argument("--layers", type=number_list, metavar='"N …"', help="numbers of layers")
        add_seeds(parser)
        parser.add_argument(
            "--lr", type=learning_rate, metavar="LR", help="learning rate; fine-tuning has a tenth of it"
        )
        add_numbers(
            parser,
            jobs="number of parallel runs (default: 1)",
            updates="of training",
            finetune_updates="of fine-tuning",
            update_freq="parts of an update, one after the other, to save memory (default: 1)",
            valid_streams="streams in validation",
            test_streams="streams in the evaluation; few of them leave more context to each token",
        )
        add_nodes(parser)
        return parser

    def describe(self, name: str, scale: Scale) -> Model:
        """The model of this name.

        Raises:
            UserError: there is none.
        """
        found = scale.named.get(name) or (scale.model(name) if scale.model else None)
        if found:
            return found
        if scale.architectures:
            if name.startswith(ARCHITECTURES):
                return Model(name)
            raise UserError(
                f'--models {name}: unknown; give architectures, such as "feedback_transformer_lm '
                f'relative_transformer_lm"{_or_names(scale.named)}'
            )
        raise UserError(f"--models {name}: unknown; choose from {', '.join(scale.named or scale.models)}")

    def runs(self, args: argparse.Namespace, scale: Scale) -> List[Run]:
        """All runs that a command line asks for, in their order.

        Raises:
            UserError: it names an unknown model, or a number of layers that a model cannot have.
        """
        if args.layers and scale.shape is None:
            raise UserError("--layers: only with --small" if self.small else "--layers: this recipe has one depth")
        return [
            self._run(model, layers, seed, args, scale)
            for seed in seeds_of(args)
            for layers in args.layers or scale.layers or [None]
            for model in args.models or scale.models
        ]

    def _run(self, name: str, layers: Optional[int], seed: int, args: argparse.Namespace, scale: Scale) -> Run:
        model = self.describe(name, scale)
        suffix = ("" if layers is None else f"-{layers}") + ("" if seed == 1 else f"-seed{seed}")
        shape = scale.shape(model.arch, layers) if scale.shape and layers is not None else {}
        options = {"arch": model.arch, **shape, **model.options}
        training = scale.training_of(model.arch)
        given = {field: getattr(args, field) for field in ("updates", "lr", "finetune_updates")}
        if training.post_norm_lr:
            given["post_norm_lr"] = args.lr
        training = replace(training, **{field: value for field, value in given.items() if value})
        training = model.training(training)
        given = {field: getattr(args, field) for field in ("valid_streams", "test_streams")}
        training = replace(training, **{field: value for field, value in given.items() if value})
        return Run(f"{name}{suffix}", suffix, name, layers, seed, model, training, options)


def _or_names(named: Dict[str, Model]) -> str:
    names = list(named)[:SHOWN]
    return f", or {', '.join(names)}{', …' if len(named) > SHOWN else ''}" if names else ""


class LanguageModelingCall(Call):
    """One call of a recipe."""

    def __init__(self, recipe: LanguageModeling, shell: Shell, args: argparse.Namespace):
        if any(word == "--lr" or word.startswith("--lr=") for word in args.extra):
            raise UserError("--lr: give it before the --; fine-tuning then has a tenth of it")
        super().__init__(recipe, shell, args, training_steps=("train", "finetune"))
        self.runs = recipe.runs(args, recipe.small if self.small else recipe.full)

    def run(self) -> None:
        """Run the steps."""
        with output(self.shell, self.recipe.name, self.out):
            self.prepare("dict.txt")
            for run in self.runs:
                self._check_streams(run.training)
            self.run_all()
            if self.machines.node_rank == 0:
                self._finish()

    def starts_from_another(self, run: Run) -> bool:
        """Whether a model is initialised with another one, or continues it."""
        return bool(run.described.init_from or run.described.finetune_from)

    def _check_streams(self, training: Training) -> None:
        parts = self.machines.processes * self.update_freq
        if training.streams % parts:
            raise UserError(
                f"--update-freq {self.update_freq}: {training.streams} streams cannot be divided among "
                f"{self.machines.processes} processes x {self.update_freq}"
            )

    def _finish(self) -> None:
        shell, out = self.shell, self.out
        draw_curves(shell, self.trainer, self.recipe.metric)
        if "evaluate" in self.steps:
            collect_results(shell, out)
            if len({run.layers for run in self.runs}) > 1:
                draw_against("layers", f"test_{self.recipe.result}")(shell, out)
            for draw in self.recipe.figures:
                draw(shell, out)
            compare(shell, out)
        if "train" in self.steps:
            for draw in self.recipe.after:
                draw(shell, out, self.runs)

    def run_steps(self, shell: Shell, run: Run) -> None:
        """Run the steps for one model."""
        for step in self.steps:
            if step == "train":
                self.train(shell, run)
            elif step == "finetune" and run.training.finetune_updates:
                self.finetune(shell, run)
            elif step == "evaluate":
                self.evaluate(shell, run, self._path(run.name))
                if shell.exists(self._checkpoint(f"{run.name}-finetuned")):
                    self.evaluate(shell, run, self._path(f"{run.name}-finetuned"))
            elif step == "generate":
                self.generate(shell, run)

    def _path(self, name: str) -> str:
        return os.path.join(self.out, name)

    def _checkpoint(self, name: str) -> str:
        return os.path.join(self.out, name, "checkpoint_best.pt")

    def _start(self, shell: Shell, run: Run) -> Dict[str, str]:
        """The options with which a model starts from another one."""
        origin, start = run.described.init_from, run.described.finetune_from
        options = {}
        if origin:
            checkpoint = self._checkpoint(f"{origin}{run.suffix}")
            shell.need(checkpoint, f"train of the model {origin}")
            options["init_from_transformer"] = checkpoint
        if start:
            checkpoint = self._checkpoint(f"{start}{run.suffix}-finetuned")
            shell.need(checkpoint, f"finetune of the model {start}")
            options["finetune_from_model"] = checkpoint
        return options

    def _before(self, run: Run, path: str) -> List[str]:
        """The runs that the one in ``path`` starts from, a model or its fine-tuning."""
        origin, start = run.described.init_from, run.described.finetune_from
        names = [f"{origin}{run.suffix}"] if origin else []
        if start:
            names += [f"{start}{run.suffix}", f"{start}{run.suffix}-finetuned"]
        if path != self._path(run.name):
            names.append(run.name)
        return [self._path(name) for name in names]

    def options(self, run: Run) -> Dict[str, Any]:
        """The options that training and fine-tuning share."""
        training = run.training
        streams = training.streams // (self.machines.processes * self.update_freq)
        return {
            **dict(task="streaming_lm", criterion="lm_loss"),
            **run.options,
            **dict(tokens_per_sample=training.tokens_per_sample, batch_size=streams, update_freq=self.update_freq),
            **dict(valid_streams=training.valid_streams, optimizer=training.optimizer),
            **training.resolved(training.options),
            "keep_interval_updates": 1,
        }

    def train(self, shell: Shell, run: Run) -> None:
        """Train a model."""
        shell.comment(f"train {run.name}")
        training = run.training
        options = {**self.options(run), **self._start(shell, run), "lr": training.lr}
        options.update(training.resolved({**training.warmup, **training.bptt_warmup}))
        self._train(shell, self._path(run.name), run, options, training.updates)

    def _train(self, shell: Shell, path: str, run: Run, options: Options, updates: int, renewed: bool = False) -> None:
        every = run.training.validate_every
        self.trainer.train(
            *(shell, path, self.data, options), updates=updates, every=every, seed=run.seed, renewed=renewed
        )

    def finetune(self, shell: Shell, run: Run) -> None:
        """Continue from the best checkpoint at a tenth of the learning rate.

        "The final performances are obtained by finetuning the models with a 10x smaller learning rate" (v3 §7.6).
        """
        checkpoint, path = self._checkpoint(run.name), self._path(f"{run.name}-finetuned")
        shell.need(checkpoint, "train")
        renewed = False
        if shell.printing:
            shell.comment(f"finetune {run.name}")
            shell.written.add(self._checkpoint(f"{run.name}-finetuned"))
        elif not started_from(path, checkpoint):
            renewed = True  # any earlier fine-tuning started from another checkpoint
            if self.machines.node_rank == 0:
                start_over(path, checkpoint)
        start, updates = "finetune_from_model", run.training.finetune_updates
        if run.training.optimizer == "clipped_adagrad":
            # Keep Adagrad's sums of squared gradients: without them its first steps would be as large as at the start
            # of training.
            done = run.training.updates if shell.printing else updates_of(checkpoint)
            shell.comment(f"(--max-update: {updates} more than the best checkpoint has, here {done})")
            start, updates = "continue_once", updates + done
        options = {**self.options(run), start: checkpoint, "lr": run.training.lr / 10}
        self._train(shell, path, run, options, updates, renewed)

    def evaluate(self, shell: Shell, run: Run, path: str) -> None:
        """Evaluate the best checkpoint on the validation and test splits; the results go to RUN.json."""
        from fb_fairseq.papers.runner.language_model_results import write_results

        checkpoint = os.path.join(path, "checkpoint_best.pt")
        shell.need(checkpoint, "train")
        for split, log in (("valid", f"{path}.valid.eval"), ("test", f"{path}.eval")):
            shell.comment(f"evaluate {os.path.basename(path)} on the {split} split")
            options = {
                **dict(task="streaming_lm", **run.described.evaluation),
                **dict(gen_subset=split, valid_streams=run.training.test_streams),
                **dict(tokens_per_sample=run.training.tokens_per_sample, softmax_batch=4096, path=checkpoint),
            }
            command = ["fairseq-eval-lm", self.data, "--user-dir", shell.user_dir, *words(options), *self.machines.cpu]
            shell.run(*command, what="evaluation", log=log)
        if not shell.printing:
            identity = {"recipe": self.recipe.name, "small": self.small, "model": run.model, "layers": run.layers}
            identity.update(seed=run.seed, lr=run.training.lr)
            write_results(shell, path, identity, run.training.test_streams, self._before(run, path))

    def generate(self, shell: Shell, run: Run) -> None:
        """Sample a continuation of the prompt from the fine-tuned model, or from the model itself."""
        checkpoint = self._checkpoint(f"{run.name}-finetuned")
        if not shell.exists(checkpoint):
            checkpoint = self._checkpoint(run.name)
        shell.need(checkpoint, "train")
        shell.comment(f"generate with {run.name}")
        sampling = dict(sampling=True, sampling_topk=10, beam=1, max_len_b=200, seed=run.seed)
        command = ["fairseq-interactive", self.data, "--user-dir", shell.user_dir, "--task", "streaming_lm"]
        command += [*words(sampling), *self.machines.cpu, "--path", checkpoint]
        sample = f"{self._path(run.name)}.sample"
        shell.run(*command, what="generation", log=sample, text=self.recipe.prompt)
        if not shell.printing:
            with open(sample, encoding="utf-8", errors="replace") as file:
                found = [line.rstrip("\n").split("\t")[2] for line in file if line.startswith("D-0")]
            shell.say("\n".join([f"== {run.name} continues: {self.recipe.prompt}", *found]))
