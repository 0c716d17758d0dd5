"""Recipes that train translation and summarization models: a vanilla Transformer, and feedback decoders.

The steps are prepare, train, average, tune (length penalty and lengths, on the validation set), generate and score
(both on the test set). Run a recipe again to resume; finished steps are skipped.
"""

import argparse
import json
import os
import shutil
from dataclasses import dataclass, field
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from fb_fairseq.errors import UserError
from fb_fairseq.files import atomic_write
from fb_fairseq.papers.runner.call import Call
from fb_fairseq.papers.runner.options import (
    RecipeParser,
    add_nodes,
    add_numbers,
    add_scale,
    add_seeds,
    names_among,
    number_list,
    seeds_of,
)
from fb_fairseq.papers.runner.session import new_shell, output
from fb_fairseq.papers.runner.settings import Options, resolved, words
from fb_fairseq.papers.runner.shell import Shell
from fb_fairseq.papers.runner.training import collect_results, compare, draw_against, draw_curves

STEPS = ("prepare", "train", "average", "tune", "generate", "score")
MODELS = ("transformer", "feedback", "initialised")
TRAINING = dict(
    criterion="label_smoothed_cross_entropy", label_smoothing=0.1, optimizer="adam", adam_betas="(0.9, 0.98)"
)


@dataclass(frozen=True)
class Variant:
    """A further model: a feedback decoder with other options, at one depth.

    Attributes:
        options: of training.
        layers: the number of decoder layers.
    """

    options: Options
    layers: int


@dataclass(frozen=True)
class Scale:
    """A translation experiment at one size.

    Attributes:
        source: where the values come from: paper, section and table.
        transformer: the architecture of the vanilla model.
        feedback: that of the feedback decoder.
        updates: of training.
        max_tokens: in an update, over all processes.
        validate_every: updates between validations, and between checkpoints.
        layers: the default of ``--layers``, numbers of decoder layers.
        training: options of training.
        decoding: options of generation.
        sizes: options of the models' sizes.
        average: number of last checkpoints to average; 1: the best one is taken.
        lenpens: length penalties to try.
        lengths: options of generation, of the lengths of outputs, to try after that.
        projections: of the model ``feedback``, "per-layer" or "shared"; the model ``initialised`` has per-layer ones by
            default, all of which have a counterpart in the vanilla model.
        variants: further models.
    """

    source: str
    transformer: str
    feedback: str
    updates: int
    max_tokens: int
    validate_every: int
    layers: Sequence[int]
    training: Options
    decoding: Options
    sizes: Options = field(default_factory=dict)
    average: int = 1
    lenpens: Sequence[float] = (1.0,)
    lengths: Sequence[Options] = ({},)
    projections: str = "per-layer"
    variants: Mapping[str, Variant] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """One model to train.

    Attributes:
        name: of its files in the recipe's folder.
        suffix: how the name goes on after the model's.
        model: transformer, feedback, initialised, or a variant.
        layers: of the decoder.
    """

    name: str
    suffix: str
    model: str
    layers: int
    seed: int
    projections: Optional[str]


@dataclass(frozen=True)
class Translation:
    """A recipe.

    Attributes:
        name: of its output folder, runs/NAME or runs/NAME-small.
        summary: one line for the list of recipes.
        corpus: what DATA is.
        pair: source and target language.
        prepare: a function that checks the user's copy of the corpus and binarises it: ``prepare(shell, source, folder,
            small)``. Its other files go to the folder, too.
        metric: metric of ``python -m fb_fairseq score``, and its key in the output, that the step tune maximises.
        full: the papers' setting.
        small: one for a CPU.
        language: of the target text, if it is not the target language.
        task: options of both training and generation.
    """

    name: str
    summary: str
    corpus: str
    pair: Tuple[str, str]
    prepare: Callable[[Shell, str, str, bool], None]
    metric: Tuple[str, str]
    full: Scale
    small: Scale
    language: str = ""
    task: Options = field(default_factory=dict)

    def main(self, argv: Sequence[str], shell: Optional[Shell] = None) -> None:
        """Run the steps that the command line names, for every seed, number of layers and model.

        Args:
            argv: the command line.
            shell: that of a recipe of which this one is a part.

        Raises:
            UserError: there is a mistake in it or in the data, or a step has failed.
        """
        args = self.parser().parse(argv)
        TranslationCall(self, shell or new_shell(args.print), args).run()

    def parser(self) -> RecipeParser:
        """The parser of its command line."""
        parser = RecipeParser(self.name, self.corpus, "fairseq-train", description=self.summary)
        add_scale(parser, "small models, for a CPU")
        parser.add_argument("--out", metavar="DIR", help="output folder (default: runs/NAME or runs/NAME-small)")
        steps, models = " ".join(STEPS), (*MODELS, *self.full.variants)
        parser.add_argument("--steps", type=names_among(STEPS), default=list(STEPS), metavar=f'"{steps}"')
        parser.add_argument("--models", type=names_among(models), default=list(MODELS), metavar=f'"{" ".join(models)}"')
        parser.add_argument("--layers", type=number_list, metavar='"N …"', help="numbers of decoder layers")
        parser.add_argument("--projections", type=names_among(("per-layer", "shared")), metavar="per-layer|shared")
        add_seeds(parser)
        add_numbers(
            parser,
            jobs="number of parallel runs (default: 1)",
            updates="of training",
            update_freq="parts of an update, one after the other, to save memory (default: 1)",
        )
        add_nodes(parser)
        return parser

    def runs(self, args: argparse.Namespace, scale: Scale) -> List[Run]:
        """All runs that a command line asks for, in their order.

        Raises:
            UserError: a model cannot have that number of layers.
        """
        variants = {**self.full.variants, **scale.variants}
        layers = args.layers or scale.layers
        if not args.layers and all(model in variants for model in args.models):
            layers = list(dict.fromkeys(variants[model].layers for model in args.models))
        runs = []
        for seed in seeds_of(args):
            for depth in layers:
                for model in args.models:
                    if model in variants and depth != variants[model].layers:
                        wanted = variants[model].layers
                        raise UserError(
                            f"--layers {depth}: the model {model} has {wanted} decoder layers; give --layers {wanted}"
                        )
                    suffix = f"-{depth}" + ("" if seed == 1 else f"-seed{seed}")
                    default = {"transformer": None, "initialised": "per-layer"}.get(model, scale.projections)
                    projections = args.projections[0] if args.projections and default else default
                    runs.append(Run(f"{model}{suffix}", suffix, model, depth, seed, projections))
        return runs


class TranslationCall(Call):
    """One call of a recipe."""

    def __init__(self, recipe: Translation, shell: Shell, args: argparse.Namespace):
        super().__init__(recipe, shell, args, training_steps=("train",))
        self.scale = recipe.small if self.small else recipe.full
        self.updates: int = args.updates or self.scale.updates
        self.runs = recipe.runs(args, self.scale)
        self.task = {
            **dict(task="translation", source_lang=recipe.pair[0], target_lang=recipe.pair[1]),
            **recipe.task,
        }
        self.language = recipe.language or recipe.pair[1]

    def run(self) -> None:
        """Run the steps."""
        shell, recipe = self.shell, self.recipe
        with output(shell, recipe.name, self.out):
            self.prepare(f"dict.{recipe.pair[1]}.txt")
            self.run_all()
            if self.machines.node_rank:
                return
            draw_curves(shell, self.trainer, "nll_loss")
            if "score" in self.steps:
                collect_results(shell, self.out)
                if len({run.layers for run in self.runs}) > 1:
                    metrics = (recipe.metric[1], "dev_nll", "decoded_tokens_per_second")
                    draw_against("layers", *metrics)(shell, self.out)
                compare(shell, self.out)

    def starts_from_another(self, run: Run) -> bool:
        """Whether a model is initialised with the transformer's parameters."""
        return run.model == "initialised"

    def run_steps(self, shell: Shell, run: Run) -> None:
        """Run the steps for one model."""
        functions = dict(
            train=self.train, average=self.average, tune=self.tune, generate=self.generate, score=self.score
        )
        for step in self.steps:
            if step in functions:
                functions[step](shell, run)

    def _path(self, run: Run, end: str = "") -> str:
        return os.path.join(self.out, f"{run.name}{end}")

    def model_options(self, shell: Shell, run: Run) -> Dict[str, object]:
        """The options that make up a model."""
        scale = self.scale
        options = {**scale.sizes, "decoder_layers": run.layers}
        options["arch"] = scale.transformer if run.model == "transformer" else scale.feedback
        options["memory_projections"] = run.projections
        variants = {**self.recipe.full.variants, **scale.variants}
        if run.model in variants:
            options.update(variants[run.model].options)
        if run.model == "initialised":
            vanilla = os.path.join(self.out, f"transformer{run.suffix}", "checkpoint_best.pt")
            shell.need(vanilla, "train of the model transformer")
            options["init_from_transformer"] = vanilla
        return options

    def train(self, shell: Shell, run: Run) -> None:
        """Train a model."""
        shell.comment(f"train {run.name}")
        options = {
            **self.task,
            **self.model_options(shell, run),
            **resolved(self.scale.training, self.updates),
            **TRAINING,
            "max_tokens": self.scale.max_tokens // self.machines.processes // self.update_freq,
            **dict(update_freq=self.update_freq, keep_interval_updates=self.scale.average, num_workers=0),
        }
        every = self.scale.validate_every
        self.trainer.train(shell, self._path(run), self.data, options, updates=self.updates, every=every, seed=run.seed)

    def average(self, shell: Shell, run: Run) -> None:
        """Write the average of the last checkpoints, or a copy of the best one, to RUN.pt."""
        path, target = self._path(run), self._path(run, ".pt")
        best = os.path.join(path, "checkpoint_best.pt")
        shell.need(best, "train")
        if not shell.printing and newer(target, f"{path}.done"):
            return
        shell.comment(f"average checkpoints of {run.name}")
        if self.scale.average > 1:
            options = dict(inputs=path, num_update_checkpoints=self.scale.average, output=target)
            shell.run("python", "-m", "fb_fairseq", "average-checkpoints", *words(options))
        elif shell.printing:
            shell.run("cp", best, target)
        else:
            with atomic_write(target) as temporary:
                shutil.copyfile(best, temporary)

    def _generate(self, shell: Shell, run: Run, subset: str, target: str, lengths: Options) -> None:
        checkpoint = self._path(run, ".pt")
        shell.need(checkpoint, "average")
        options = {
            **self.task,
            **dict(gen_subset=subset, path=checkpoint, remove_bpe=True, max_tokens=4000),
            **dict(num_workers=0, cpu=bool(self.machines.cpu)),
            **self.scale.decoding,
            **lengths,
        }
        command = ["fairseq-generate", self.data, "--user-dir", shell.user_dir, *words(options)]
        shell.run(*command, what="generation", log=f"{target}.err", write=target)

    def tune(self, shell: Shell, run: Run) -> None:
        """Find the length penalty with the best metric on the validation set, and then the best lengths.

        Writes the options of generation to RUN.tuned, one word per line, and the metric's value to RUN.dev.
        """
        shell.need(self._path(run, ".pt"), "average")
        tuned = self._path(run, ".tuned")
        if not shell.printing and newer(tuned, self._path(run, ".pt")):
            return
        first, *others = self.scale.lengths
        chosen, best = {"lenpen": 1.0, **first}, None
        for lenpen in self.scale.lenpens:
            chosen, best = self._better(shell, run, {"lenpen": lenpen, **first}, chosen, best)
        for lengths in others:
            chosen, best = self._better(shell, run, {"lenpen": chosen["lenpen"], **lengths}, chosen, best)
        if not shell.printing:
            for path, lines in ((self._path(run, ".dev"), [str(best)]), (tuned, words(chosen))):
                with atomic_write(path) as temporary, open(temporary, "w") as file:
                    file.write("\n".join(lines) + "\n")

    def _better(self, shell: Shell, run: Run, tried: Options, chosen: Options, best: Optional[float]) -> Tuple:
        """Translate the validation set with some options. Returns the better ones, these or ``chosen``, and their
        value of the metric."""
        options = " ".join(words(tried))
        shell.comment(f"tune {run.name}: {options}")
        target, (metric, key) = self._path(run, ".valid"), self.recipe.metric
        self._generate(shell, run, "valid", target, tried)
        command = ("python", "-m", "fb_fairseq", "score", "--gen", target, "--language", self.language)
        command += ("--metrics", metric)
        if shell.printing:
            shell.run(*command)
            return chosen, best
        value = json.loads(shell.output(*command, what="scoring"))[key]
        shell.say(f"== {run.name}: {key} {value} on the validation set with {options}")
        return (tried, value) if best is None or value > best else (chosen, best)

    def generate(self, shell: Shell, run: Run) -> None:
        """Translate the test set with the tuned options to RUN.test."""
        checkpoint, target, tuned = (self._path(run, end) for end in (".pt", ".test", ".tuned"))
        shell.need(checkpoint, "average")
        lenpens = self.scale.lenpens
        lengths: Dict[str, object] = {"lenpen": lenpens[0] if len(lenpens) == 1 else 1.0, **self.scale.lengths[0]}
        if shell.printing:
            shell.comment(f"generate with {run.name} (length options: the best ones of tune)")
        else:
            if newer(target, checkpoint) and not newer(tuned, target):
                return
            if os.path.exists(tuned):
                lengths = read_tuned(tuned)
        self._generate(shell, run, "test", target, lengths)

    def score(self, shell: Shell, run: Run) -> None:
        """Write the scores on the test set to RUN.json."""
        from fb_fairseq.papers.runner.translation_results import write_results

        generated, scores = self._path(run, ".test"), self._path(run, ".score")
        shell.need(generated, "generate")
        shell.comment(f"score {run.name}")
        command = ["python", "-m", "fb_fairseq", "score", "--gen", generated, "--language", self.language]
        raw = os.path.join(self.data, f"test.raw.{self.recipe.pair[1]}")
        command += ["--raw-ref", raw] if shell.exists(raw) else []
        if shell.printing:
            shell.run(*command)
            return
        text = shell.output(*command, what="scoring")
        with open(scores, "w", encoding="utf-8") as file:
            file.write(f"{text}\n")
        identity = {"recipe": self.recipe.name, "small": self.small, "model": run.model, "layers": run.layers}
        identity.update(seed=run.seed, **({"projections": run.projections} if run.projections else {}))
        write_results(shell, self._path(run), identity)


def newer(path: str, other: str) -> bool:
    """Whether a file exists and is newer than another one, which may not exist."""
    if not os.path.exists(path):
        return False
    return not os.path.exists(other) or os.path.getmtime(path) > os.path.getmtime(other)


def read_tuned(path: str) -> Dict[str, str]:
    """The options in RUN.tuned."""
    with open(path) as file:
        lines = file.read().split()
    return {name[2:].replace("-", "_"): value for name, value in zip(lines[::2], lines[1::2])}
