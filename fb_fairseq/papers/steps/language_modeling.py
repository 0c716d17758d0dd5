"""The steps of language models on streams of text: prepare the data, then train, fine-tune and evaluate each model, and
continue a text with it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

from fb_fairseq.errors import UserError
from fb_fairseq.papers.experiments.settings import (
    ARCHITECTURES,
    LanguageModeling,
    Model,
    Options,
    Scale,
    Training,
)
from fb_fairseq.papers.steps import PYTHON, Call, Recipe, Step
from fb_fairseq.papers.steps.options import check_models, known
from fb_fairseq.papers.steps.results import against, curves, drawn, result, summary
from fb_fairseq.papers.steps.training import FINETUNED, batch_of, best, fairseq_train, suffix
from fb_fairseq.papers.steps.words import resolved, words

Prepare = Callable[[Call], Iterator[Step]]
CHANGES = ("updates", "lr", "finetune_updates", "valid_streams", "test_streams")  # fields of Training
OPTIONS = known("models layers seeds updates lr finetune_updates valid_streams test_streams update_freq")


def recipe(setting: LanguageModeling, prepare: Prepare) -> Recipe:
    """The recipe of a setting. ``prepare`` yields the steps that make OUT/data of DATA."""

    def steps(call: Call) -> Iterator[Step]:
        yield from prepare(call)
        runs = list(runs_of(setting, call))
        for run in runs:
            yield from steps_of(run, call, setting.prompt)
        yield from summary(call)
        yield from figures(runs, call, setting)

    sizes = "full" if setting.full and setting.small else "one"
    return Recipe(setting.summary, steps, OPTIONS, setting.corpus, sizes)


@dataclass(frozen=True)
class Run:
    """A model to train.

    Attributes:
        name: of its files.
        end: of the name, after the model's.
        values: what it is, in its results.
        model: its entry in the setting.
        training: the setting's, with the changes of the call.
        options: of its architecture.
    """

    name: str
    end: str
    values: dict[str, Any]
    model: Model
    training: Training
    options: Options

    @property
    def trainings(self) -> list[str]:
        """The names of its trainings: its own, and that of its fine-tuning."""
        return [self.name, f"{self.name}{FINETUNED}"] if self.training.finetune_updates else [self.name]


def runs_of(setting: LanguageModeling, call: Call) -> Iterator[Run]:
    """The runs of a call."""
    scale = setting.small if call.small or not setting.full else setting.full
    models = {name: model_of(name, scale) for name in call.options.get("models", scale.models)}
    check_options(setting, scale, models, call)
    # Those that start from another come after it.
    in_order = sorted(models, key=lambda name: bool(models[name].init_from or models[name].finetune_from))
    axes = (call.options.get("seeds", [1]), call.options.get("layers") or scale.layers or [None])
    for seed, layers, name in product(*axes, in_order):
        model = models[name]
        training = training_of(model, scale, call)
        shape = scale.shape(model.arch, layers) if scale.shape and layers is not None else {}
        end = suffix(seed, layers)
        values = {"model": name, "layers": layers, "seed": seed, "lr": training.lr}
        yield Run(
            name=f"{name}{end}",
            end=end,
            values=values,
            model=model,
            training=training,
            options={**shape, **model.options},
        )


def check_options(setting: LanguageModeling, scale: Scale, models: Mapping[str, Model], call: Call) -> None:
    """Refuse options that a setting does not have, or that would not do what they say."""
    if "layers" in call.options and scale.shape is None:
        raise UserError("--layers: only with --small" if setting.small else "--layers: this recipe has one depth")
    if any(word == "--lr" or word.startswith("--lr=") for word in call.extra):
        raise UserError("--lr: give it before the --; fine-tuning then has a tenth of it")
    for name, model in models.items():
        if model.finetune_from and call.options.get("finetune_updates") == 0:
            raise UserError(
                f"--finetune-updates 0: {name} is a fine-tuned model; give more, or leave it out of --models"
            )


def training_of(model: Model, scale: Scale, call: Call) -> Training:
    """The training of a model, with the changes that a call asks for."""
    changes = call.given(*CHANGES)
    training = scale.training_of(model.arch)
    if training.post_norm_lr and "lr" in changes:
        changes["post_norm_lr"] = changes["lr"]
    return model.training(replace(training, **changes))


def model_of(name: str, scale: Scale) -> Model:
    """The model of a name in ``--models``."""
    found = scale.named.get(name) or scale.model(name)
    if found is None:
        architectures = ARCHITECTURES if scale.architectures else ()
        choices = dict.fromkeys([*scale.models, *scale.named, *architectures])
        check_models([name], choices, lambda name: name.startswith(architectures))
    return found or Model(name)


def steps_of(run: Run, call: Call, prompt: str) -> Iterator[Step]:
    """Train a model, fine-tune it, evaluate both, and continue a text with the last one.

    Args:
        run: the model.
        call: the call of the recipe.
        prompt: the beginning of the text.
    """
    yield from trained(run, call)
    for name in run.trainings:
        for split in ("valid", "test"):
            yield evaluation(run, call, name, split)
        finetuned = name != run.name
        yield result(call, name, **run.values, finetuned=finetuned, test_streams=run.training.test_streams)
    yield continued(run, call, prompt)


def trained(run: Run, call: Call) -> Iterator[Step]:
    """Train a model, and fine-tune it."""
    model = run.model
    training = run.training
    options = {
        "task": "streaming_lm",
        "criterion": "lm_loss",
        "arch": model.arch,
        **run.options,
        "tokens_per_sample": training.tokens_per_sample,
        **batch_of(call, training.streams),
        "valid_streams": training.valid_streams,
        "optimizer": training.optimizer,
        **resolved(training.options, training.updates),
        "keep_interval_updates": 1,
    }
    start = {"lr": training.lr, **resolved({**training.warmup, **training.bptt_warmup}, training.updates)}
    if model.init_from:
        start["init_from_transformer"] = best(call, f"{model.init_from}{run.end}")
    if model.finetune_from:
        start["finetune_from_model"] = best(call, f"{model.finetune_from}{run.end}{FINETUNED}")
    train = partial(fairseq_train, call, data="data", every=training.validate_every, seed=run.values["seed"])
    yield train(run.name, options={**options, **start}, updates=training.updates)
    if training.finetune_updates:
        start, updates = finetuning(training, best(call, run.name))
        yield train(run.trainings[1], options={**options, **start}, updates=updates)


def finetuning(training: Training, checkpoint: str) -> tuple[dict[str, Any], int]:
    """The options of fine-tuning in which it differs from training, and its ``--max-update``. "The final performances
    are obtained by finetuning the models with a 10x smaller learning rate" (v3 §7.6).

    Args:
        training: the setting.
        checkpoint: of the model.
    """
    lr = training.lr / 10
    if training.optimizer == "clipped_adagrad":
        # Its sums of squared gradients are kept: its first steps would be as large as at the start of training.
        return {"continue_once": checkpoint, "lr": lr}, training.updates + training.finetune_updates
    return {"finetune_from_model": checkpoint, "lr": lr}, training.finetune_updates


def evaluation(run: Run, call: Call, name: str, split: str) -> Step:
    """Evaluate a checkpoint of a model.

    Args:
        run: the model.
        call: the call of the recipe.
        name: one of its ``trainings``.
        split: "valid" or "test".
    """
    options = {
        "task": "streaming_lm",
        **run.model.evaluation,
        "gen_subset": split,
        "valid_streams": run.training.test_streams,
        "tokens_per_sample": run.training.tokens_per_sample,
        "softmax_batch": 4096,
        "path": best(call, name),
    }
    command = ["fairseq-eval-lm", call.at("data"), "--user-dir", "fb_fairseq", *words(options), *call.cpu]
    log = call.at(f"{name}.{split}.eval")
    return Step(f"evaluate {name}, {split}", command, [log], log=log)


def continued(run: Run, call: Call, prompt: str) -> Step:
    """Continue a text, which begins with ``prompt``, with a model, after fine-tuning if there was any."""
    sample = call.at(f"{run.name}.sample")
    command = [*PYTHON, "fb_fairseq", "generate", "--path", best(call, run.trainings[-1]), "--data", call.at("data")]
    command += ["--prompt", prompt, "--length", 200, "--seed", run.values["seed"], *call.cpu]
    return Step(f"continue a text with {run.name}", command, [sample], output=sample, shown=True)


def figures(runs: Sequence[Run], call: Call, setting: LanguageModeling) -> Iterator[Step]:
    """The figures of all runs."""
    yield curves(call, {run.name: run.trainings for run in runs}, setting.metric)
    measure = "test_perplexity" if setting.metric == "ppl" else "test_bits_per_token"
    varied = ["layers"] if len({run.values["layers"] for run in runs}) > 1 else []
    for field in [*varied, *setting.against]:
        yield against(call, field, measure)
    if setting.figure:
        yield drawn(call, *setting.figure)
    if setting.hours:  # of the first seed and depth; those of initialised models include the Transformer's
        logs = {}
        for run in runs:
            if run.end == runs[0].end:
                before = [f"{run.model.init_from}{run.end}"] if run.model.init_from else []
                logs[run.name] = [*before, run.name]
        yield curves(call, logs, "ppl", "hours", "--x", "hours")
