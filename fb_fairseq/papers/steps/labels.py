"""The steps of fairseq's models on a toy task: generate sequences, then train and evaluate each model on them. The
first stages of a curriculum are runs of their own, with the size in their names.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any

from fb_fairseq.command_line import whole_number
from fb_fairseq.errors import flag
from fb_fairseq.papers.experiments.settings import ARCHITECTURES, composition
from fb_fairseq.papers.steps import PYTHON, Call, Recipe, Step
from fb_fairseq.papers.steps.data import SPLITS, preprocess
from fb_fairseq.papers.steps.language_modeling import divided
from fb_fairseq.papers.steps.options import check_models, known, several
from fb_fairseq.papers.steps.training import against, best, curves, fairseq_train, result, suffix, summary
from fb_fairseq.papers.steps.words import words
from fb_fairseq.papers.toy_tasks import load
from fb_fairseq.papers.toy_tasks.common import LabelsRecipe, Option
from fb_fairseq.papers.toy_tasks.common.recipe import FULL, SMALL, Setting

MODELS = ("feedback_transformer_lm", "relative_transformer_lm", "streaming_lstm_lm")
FIRST_SPAN = 8  # initial length of adaptive spans, in steps
OPTIONS = {
    **known("models spans layers seeds updates update_freq"),
    "fixed_span": (None, "long spans do not grow in training"),
}


def recipe(task: str, described: LabelsRecipe) -> Recipe:
    """The recipe of a toy task."""
    data = data_options(task)
    types = {int: whole_number, str: str, bool: None}
    options = {name: (types[type(given.default)], given.help) for name, given in data.items()}
    if described.curriculum_option:
        options["curriculum"] = (
            several(whole_number),
            f"sizes of a curriculum's first stages ({flag(described.curriculum_option)})",
        )
    return Recipe(described.summary, partial(steps_of, task, described, data), {**OPTIONS, **options}, sizes="small")


def data_options(task: str) -> dict[str, Option]:
    """The options of a task's data: numbers of sequences, and its own."""
    found: dict[str, Option] = {split: Option(1, f"number of sequences, {split}") for split in SPLITS}
    for name, each in load(task).TASK.options.items():
        found.update({spelling: each for spelling in each.help_texts(name)})
    return found


def steps_of(task: str, described: LabelsRecipe, data: Mapping[str, Option], call: Call) -> Iterator[Step]:
    """The steps of a call.

    Args:
        task: name of the toy task.
        described: its recipe.
        data: its ``data_options``.
        call: the call.
    """
    setting = SMALL.changed(**described.small) if call.small else FULL.changed(**described.full)
    sequences = {**setting.sequences, **call.given(*data)}
    setting = setting.changed(**call.given("updates"))
    given = call.options
    models = given.get("models", MODELS)
    logs = {}
    check_models(
        models, [*ARCHITECTURES, "average", "layer1"], lambda name: name.startswith(ARCHITECTURES) or composition(name)
    )
    curriculum = given.get("curriculum", [])
    spans = given.get("spans", [None])
    for seed in given.get("seeds", [1]):
        for stage in [None, *curriculum]:
            size = {described.curriculum_option: stage} if stage else {}
            yield from data_steps(call, task, seed, stage, {**sequences, **size})
        for layers, span, model in product(given.get("layers", [None]), spans, models):
            if "lstm" in model and span != spans[0]:  # LSTMs have no span
                continue
            own = setting.changed(layers=layers or setting.layers, span=span or setting.span)
            end = suffix(seed, layers, None if "lstm" in model else span)
            run = f"{model}{end}"
            stages = {f"{model}-{described.curriculum_option}{stage}{end}": stage for stage in curriculum}
            stages[run] = None
            yield from trainings(call, own, model, seed, stages)
            accuracy = call.at(f"{run}.accuracy")
            command = [*PYTHON, "fb_fairseq", "evaluate-labels", call.at(data_name(seed)), "--path", best(call, run)]
            yield Step(f"evaluate {run}", [*command, *call.cpu, "--out", accuracy], [accuracy])
            values = {"model": model, "seed": seed, "layers": own.layers, "updates": own.updates}
            values["attention_span"] = None if "lstm" in model else own.span
            data_words = words({**sequences, "curriculum": ",".join(map(str, curriculum)) or None})
            yield result(call, run, **values, data=" ".join(data_words))
            logs[run] = list(stages)
    yield from summary(call)
    yield curves(call, logs, "accuracy")
    if len(given.get("layers", [])) > 1:
        yield against(call, "layers", "accuracy")
    if len(spans) > 1 and any("lstm" not in model for model in models):
        yield against(call, "attention_span", "accuracy")


def data_name(seed: int, stage: int | None = None) -> str:
    """The folder of the binarised sequences of a seed and a curriculum's stage."""
    return f"data{suffix(seed)}" + (f"-{stage}" if stage else "")


def data_steps(call: Call, task: str, seed: int, stage: int | None, sequences: Mapping[str, Any]) -> Iterator[Step]:
    """Generate sequences, and binarise them; those of a stage with the dictionaries of the others."""
    name = data_name(seed, stage)
    text = call.at("text", name)
    command = [*PYTHON, "fb_fairseq", "synthetic-tasks", task, "--seed", seed, *words(sequences), "--out", text]
    command.append("--overwrite")  # what a call has left that was killed, say
    yield Step(
        f"generate {name}", command, [f"{text}/{split}.{side}" for split in SPLITS for side in ("input", "label")]
    )
    options = {"source_lang": "input", "target_lang": "label"}
    if stage:
        first = call.at(data_name(seed))
        options.update(srcdict=f"{first}/dict.input.txt", tgtdict=f"{first}/dict.label.txt")
    yield preprocess(call, name, text, SPLITS, options)


def trainings(call: Call, setting: Setting, model: str, seed: int, stages: Mapping[str, int | None]) -> Iterator[Step]:
    """Train a model on each stage of a curriculum, from the best checkpoint of the stage before.

    Args:
        call: the call.
        setting: with the layers and the span of this model.
        model: its name.
        seed: of the parameters and the data.
        stages: the runs' names, with the sizes of their sequences; None: the full size.
    """
    start = {}
    for run, stage in stages.items():
        options = {**options_of(setting, model, bool(call.options.get("fixed_span"))), **start}
        options["batch_size"] = divided(call, setting.streams, "streams")
        options["update_freq"] = call.options.get("update_freq", 1)
        yield fairseq_train(
            call,
            run,
            data=data_name(seed, stage),
            options=options,
            updates=setting.updates,
            every=setting.updates // 5 + 1,
            seed=seed,
        )
        start = {"finetune_from_model": best(call, run)}


def options_of(setting: Setting, model: str, fixed_span: bool) -> dict[str, Any]:
    """The options of a model's training."""
    composed = composition(model)
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
        "best_checkpoint_metric": "accuracy",
        "maximize_best_checkpoint_metric": True,
        "keep_interval_updates": 1,
    }
    if "lstm" in model:
        return {**options, **setting.lstm}
    options.update(setting.attention)
    if setting.growing_span and setting.span > FIRST_SPAN and not fixed_span:
        start = FIRST_SPAN / setting.span
        options.update(adaptive_span=True, adaptive_span_init=start, adaptive_span_ramp=FIRST_SPAN)
    options["attention_span"] = setting.span
    return {**options, **(setting.feedback if model == "feedback_transformer_lm" else {}), **(composed or {})}
