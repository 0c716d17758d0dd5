"""The steps of translation and summarization: prepare the data, then train each model, average its checkpoints, and
translate the test set with the options of generation that are best on the validation set.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

from fb_fairseq.errors import UserError
from fb_fairseq.papers.experiments.settings import Options, Translation, TranslationScale
from fb_fairseq.papers.steps import PYTHON, Call, Recipe, Step
from fb_fairseq.papers.steps.options import check_models, known
from fb_fairseq.papers.steps.results import against, curves, result, summary
from fb_fairseq.papers.steps.training import best, fairseq_train, suffix
from fb_fairseq.papers.steps.words import resolved, words

Prepare = Callable[[Call], Iterator[Step]]
INITIALISED = "initialised"  # from the Transformer's parameters (v1 §3.2)
MODELS = ("transformer", "feedback", INITIALISED)


def recipe(setting: Translation, prepare: Prepare) -> Recipe:
    """The recipe of a setting. ``prepare`` yields the steps that make OUT/data of DATA."""
    options = {
        **known("models layers seeds updates update_freq"),
        "projections": (str, "of the memory: per-layer or shared"),
    }
    return Recipe(setting.summary, partial(steps_of, setting, prepare), options, setting.corpus)


def steps_of(setting: Translation, prepare: Prepare, call: Call) -> Iterator[Step]:
    """The steps of a call.

    Args:
        setting: the experiment.
        prepare: yields the steps that make OUT/data of DATA.
        call: the call.
    """
    yield from prepare(call)
    scale = setting.small if call.small else setting.full
    variants = setting.full.variants  # in the small setting, too
    given = call.options
    task = {"task": "translation", "source_lang": setting.pair[0], "target_lang": setting.pair[1], **setting.task}
    models = sorted(given.get("models", MODELS), key=lambda name: name == INITIALISED)  # after its Transformer
    check_models(models, [*MODELS, *variants])
    depths = given.get("layers", scale.layers)
    only = {model: variants[model]["decoder_layers"] for model in models if model in variants}
    for model, depth in only.items():
        if depth not in depths:
            raise UserError(f"--layers: {model} has {depth} decoder layers; give {depth}, too, or leave it out")
    runs = {}
    for seed, depth, model in product(given.get("seeds", [1]), depths, models):
        if depth != only.get(model, depth):
            continue
        run = f"{model}{suffix(seed, depth)}"
        more = dict(variants.get(model, {}))
        if model == INITIALISED:
            more["init_from_transformer"] = best(call, f"transformer{suffix(seed, depth)}")
        options = options_of(scale, call, model, depth, more)
        yield fairseq_train(
            call,
            run,
            data="data",
            options={**task, **options},
            updates=given.get("updates", scale.updates),
            every=scale.validate_every,
            seed=seed,
        )
        yield averaged(scale, call, run)
        yield translated(setting, scale, task, call, run)
        projections = options["memory_projections"]
        yield result(call, run, model=model, layers=depth, seed=seed, projections=projections)
        runs[run] = depth
    yield from summary(call)
    yield curves(call, {run: [run] for run in runs}, "nll_loss")
    if len(set(runs.values())) > 1:
        yield against(call, "layers", setting.metric[1], "dev_nll", "decoded_tokens_per_second")


def options_of(scale: TranslationScale, call: Call, model: str, depth: int, more: Options) -> dict[str, Any]:
    """The options of a model's training, beside those of the task.

    Args:
        scale: the size of the experiment.
        call: the call.
        model: its name.
        depth: number of decoder layers.
        more: further options of the model.
    """
    given = call.options
    freq = given.get("update_freq", 1)
    arch = scale.feedback
    projections = given.get("projections", "per-layer" if model == INITIALISED else scale.projections)
    if model == "transformer":
        arch = scale.transformer
        projections = None
    return {
        **scale.sizes,
        "decoder_layers": depth,
        "arch": arch,
        "memory_projections": projections,
        **more,
        **resolved(scale.training, given.get("updates", scale.updates)),
        "criterion": "label_smoothed_cross_entropy",
        "label_smoothing": 0.1,
        "optimizer": "adam",
        "adam_betas": "(0.9, 0.98)",
        "max_tokens": scale.max_tokens // call.processes // freq,
        "update_freq": freq,
        "keep_interval_updates": scale.average,
        "num_workers": 0,
    }


def averaged(scale: TranslationScale, call: Call, run: str) -> Step:
    """Average the last checkpoints of a run to OUT/RUN.pt, or take the best one."""
    checkpoint = call.at(f"{run}.pt")
    options = {"inputs": call.at(run), "num_update_checkpoints": scale.average, "output": checkpoint}
    command = [*PYTHON, "fb_fairseq", "average-checkpoints", *words(options)]
    if scale.average == 1:
        command = ["cp", best(call, run), checkpoint]
    return Step(f"average checkpoints of {run}", command, [checkpoint])


def translated(setting: Translation, scale: TranslationScale, task: Options, call: Call, run: str) -> Step:
    """Find the best options of generation on the validation set, and translate the test set with them.

    Args:
        setting: the experiment.
        scale: its size.
        task: options of the task.
        call: the call.
        run: the run, whose model is OUT/RUN.pt.
    """
    raw = call.at("text", f"test.raw.{setting.pair[1]}") if scale.raw else ""
    tried = [" ".join(map(str, scale.lenpens)), "; ".join(" ".join(words(lengths)) for lengths in scale.lengths)]
    command = [*PYTHON, "fb_fairseq.papers.results.translate", call.at(run), setting.language or setting.pair[1]]
    command += [*setting.metric, *tried, raw]
    decoding = {
        **task,
        "path": call.at(f"{run}.pt"),
        "remove_bpe": True,
        "max_tokens": 4000,
        "num_workers": 0,
        **scale.decoding,
    }
    command += [call.at("data"), "--user-dir", "fb_fairseq", *words(decoding), *call.cpu]
    scores = call.at(f"{run}.scores")
    log = call.at(f"{run}.translations.log")
    return Step(f"translate with {run}", command, [scores, call.at(f"{run}.test")], log=log)
