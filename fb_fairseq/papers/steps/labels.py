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
from fb_fairseq.papers.steps.options import Options, check_models, known, several
from fb_fairseq.papers.steps.results import against, curves, result, summary
from fb_fairseq.papers.steps.training import batch_of, best, fairseq_train, suffix
from fb_fairseq.papers.steps.words import words
from fb_fairseq.papers.toy_tasks import load
from fb_fairseq.papers.toy_tasks.common import LabelsRecipe
from fb_fairseq.papers.toy_tasks.common.recipe import FULL, SMALL, Setting

MODELS = ("feedback_transformer_lm", "relative_transformer_lm", "streaming_lstm_lm")
FIRST_SPAN = 8  # initial length of adaptive spans, in steps
OPTIONS = {
    **known("models spans layers seeds updates update_freq"),
    "fixed_span": (None, "long spans do not grow in training"),
}


def recipe(task: str, described: LabelsRecipe) -> Recipe:
    """The recipe of a toy task."""
    options = {**OPTIONS, **data_options(task)}
    if described.curriculum_option:
        options["curriculum"] = (
            several(whole_number),
            f"sizes of a curriculum's first stages ({flag(described.curriculum_option)})",
        )
    return Recipe(described.summary, partial(steps_of, task, described), options, sizes="small")


def data_options(task: str) -> Options:
    """The options of a task's data: numbers of sequences, and its own."""
    types = {int: whole_number, str: str, bool: None}
    found = {split: (whole_number, f"number of sequences, {split}") for split in SPLITS}
    for name, option in load(task).TASK.options.items():
        for spelling, text in option.help_texts(name).items():
            found[spelling] = (types[type(option.default)], text.partition(" (default")[0])  # the recipe has its own
    return found


def steps_of(task: str, described: LabelsRecipe, call: Call) -> Iterator[Step]:
    """The steps of a call.

    Args:
        task: name of the toy task.
        described: its recipe.
        call: the call.
    """
    given = call.options
    setting = SMALL.changed(**described.small) if call.small else FULL.changed(**described.full)
    setting = setting.changed(sequences=call.given(*data_options(task)), **call.given("updates"))
    models = given.get("models", MODELS)
    check_models(
        models, [*ARCHITECTURES, "average", "layer1"], lambda name: name.startswith(ARCHITECTURES) or composition(name)
    )
    curriculum = given.get("curriculum", [])
    data_words = words({**setting.sequences, "curriculum": ",".join(map(str, curriculum)) or None})
    logs = {}
    identities = []
    for seed in given.get("seeds", [1]):
        yield from data_steps(call, task, seed, setting.sequences)
        for stage in curriculum:
            yield from data_steps(call, task, seed, {**setting.sequences, described.curriculum_option: stage}, stage)
        for layers, span, model in product(given.get("layers", [None]), given.get("spans", [None]), models):
            own_span = None if "lstm" in model else span
            end = suffix(seed, layers, own_span)
            run = f"{model}{end}"
            if run in logs:  # an LSTM, which has no span
                continue
            own = setting.changed(layers=layers, span=own_span)
            options = options_of(own, model, "fixed_span" in given)
            stages = {f"{model}-{described.curriculum_option}{stage}{end}": stage for stage in curriculum}
            stages[run] = None
            yield from trainings(call, own, options, seed, stages)
            identity = {"model": model, "seed": seed, "layers": own.layers, "updates": own.updates}
            identity["attention_span"] = options.get("attention_span")
            yield from evaluated(call, run, **identity, data=" ".join(data_words))
            identities.append(identity)
            logs[run] = list(stages)
    yield from summary(call)
    yield curves(call, logs, "accuracy")
    for field in ("layers", "attention_span"):
        if len({identity[field] for identity in identities} - {None}) > 1:
            yield against(call, field, "accuracy")


def data_name(seed: int, stage: int | None = None) -> str:
    """The folder of the binarised sequences of a seed and a curriculum's stage."""
    return f"data{suffix(seed)}" + (f"-{stage}" if stage else "")


def data_steps(
    call: Call, task: str, seed: int, sequences: Mapping[str, Any], stage: int | None = None
) -> Iterator[Step]:
    """Generate sequences, and binarise them; those of a stage with the dictionaries of the others.

    Args:
        call: the call.
        task: name of the toy task.
        seed: of the data.
        sequences: options of ``synthetic-tasks``.
        stage: of a curriculum, the size of its sequences; None: the full size.
    """
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


def trainings(
    call: Call, setting: Setting, options: Mapping[str, Any], seed: int, stages: Mapping[str, int | None]
) -> Iterator[Step]:
    """Train a model on each stage of a curriculum, from the best checkpoint of the stage before.

    Args:
        call: the call.
        setting: that of the model.
        options: see ``options_of``.
        seed: of the parameters and the data.
        stages: the runs' names, with the sizes of their sequences; None: the full size.
    """
    start = {}
    for run, stage in stages.items():
        yield fairseq_train(
            call,
            run,
            data=data_name(seed, stage),
            options={**options, **start, **batch_of(call, setting.streams)},
            updates=setting.updates,
            every=setting.updates // 5 + 1,
            seed=seed,
        )
        start = {"finetune_from_model": best(call, run)}


def evaluated(call: Call, run: str, **identity: Any) -> Iterator[Step]:
    """Evaluate a run on the data of its seed, and write its result. ``identity``: see ``result``."""
    accuracy = call.at(f"{run}.accuracy")
    data = call.at(data_name(identity["seed"]))
    command = [*PYTHON, "fb_fairseq", "evaluate-labels", data, "--path", best(call, run), *call.cpu]
    yield Step(f"evaluate {run}", [*command, "--out", accuracy], [accuracy])
    yield result(call, run, **identity)


def options_of(setting: Setting, model: str, fixed_span: bool) -> dict[str, Any]:
    """The options of a model's training, but for its batch.

    Args:
        setting: with the layers and the span of this model.
        model: an architecture, or a memory composition.
        fixed_span: whether long spans do not grow.
    """
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
