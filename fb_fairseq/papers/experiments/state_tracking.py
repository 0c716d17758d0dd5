"""State tracking beside the recurrent models of today: not in the Feedback Transformer papers (docs/state-tracking.md).
The settings are in the files of the toy tasks."""

import argparse
import os

from fb_fairseq.papers.runner.options import name_among, number_list, rate_list, whole_number, word_list
from fb_fairseq.papers.runner.settings import composition, words
from fb_fairseq.papers.runner.shell import Shell, last_line
from fb_fairseq.papers.runner.sweep import Axis, Call, Run, Sweep
from fb_fairseq.papers.state_tracking.architectures import ARCHITECTURES
from fb_fairseq.papers.state_tracking.trainer import CURRICULA
from fb_fairseq.papers.toy_tasks.common import Tracking
from fb_fairseq.papers.toy_tasks.word_problem import GROUPS

COMMAND = ("python", "-m", "fb_fairseq", "state-tracking")
FIGURE = "fb_fairseq.papers.experiments.figures.state_tracking"
MODELS = ("feedback", "transformer", "lstm")


def model_list(text: str) -> list[str]:
    """A type of argparse: architectures, or memory compositions of the Feedback Transformer."""
    models = word_list(text)
    for model in models:
        if model not in ARCHITECTURES and composition(model) is None:
            known = ", ".join([*ARCHITECTURES, "average", "previous", "layer1"])
            raise argparse.ArgumentTypeError(f"{model}: unknown; choose from {known}, …")
    return models


def train(shell: Shell, run: Run) -> None:
    """Train a model and test it, in RUN/; nothing if it has been."""
    values = dict(run.values)
    model = values.pop("model")
    composed = composition(model)
    options = {"task": run.options["task"], "model": "feedback" if composed else model, **run.options}
    options.update({name: values[name] for name in ("layers", "span", "lr", "seed") if name in values})
    if composed:
        options["memory_composition"] = composed["memory_composition"]
    command = (*COMMAND, "train", *words(options), "--out", run.path, *run.extra)
    shell.run(*command, what=run.name, log=run.log, append=True)
    shell.say(f"== {run.name}: {shell.do(last_line, run.log)}")


def measure_speed(call: Call) -> None:
    """Measure the speed of all models, one after the other, to OUT/speed.json."""
    shell, args = call.shell, call.args
    names = " ".join(model for model in args.models or MODELS if model in ARCHITECTURES)
    path = os.path.join(call.out, "speed.json")
    if names and not args.no_speed and not shell.do(os.path.exists, path):
        shell.comment("measure steps per second")
        setting = words({name: value for name, value in call.recipe.options(call).items() if name != "updates"})
        log = os.path.join(call.out, "speed.log")
        shell.run(*COMMAND, "speed", "--models", names, *setting, "--out", path, what="speed", log=log)


def draw(call: Call) -> None:
    """Draw the comparison, and write its table."""
    call.shell.comment("draw the comparison")
    call.shell.run("python", "-m", FIGURE, call.out)


def state_tracking(name: str, recipe: Tracking) -> Sweep:
    """The recipe of a toy task."""
    models = f"{', '.join(ARCHITECTURES)}, or memory compositions: average, previous, layer1, … (default: "
    models += f"{' '.join(MODELS)})"
    rates = "learning rates, each a run; the best one of a model on validation data counts (default: "
    rates += f"{' '.join(map(str, recipe.rates))})"
    number = dict(type=whole_number, metavar="N")
    text = "growing (training sequences get longer as soon as the model is right; default) or mixed (of all lengths)"
    changes = {
        "updates": dict(**number, help="of training"),
        "longest": dict(**number, help="training sequences have up to so many elements (recall: pairs)"),
        "curriculum": dict(type=name_among(CURRICULA), metavar="NAME", help=text),
        "test_sequences": dict(**number, help="sequences of each size in tests (default: 3000)"),
    }
    if "group" in recipe.small:
        text = f"{', '.join(GROUPS)} (default: {recipe.small['group']}; --full: {recipe.full['group']})"
        changes["group"] = dict(type=name_among(GROUPS), metavar="NAME", help=text)
    return Sweep(
        name,
        recipe.summary,
        "python -m fb_fairseq state-tracking train",
        "train and test",
        axes=(
            Axis("model", models, MODELS, MODELS, model_list),
            Axis("span", "attention spans, each a run", label="span{}"),
            Axis("layers", "numbers of layers, each a run", label="layers{}", kind=number_list),
            Axis("lr", rates, recipe.rates, recipe.rates, rate_list, label="lr{:g}"),
        ),
        each=(train,),
        figures=(measure_speed, draw),
        small=dict(task=name, **recipe.small),
        full=dict(task=name, **recipe.full),
        changes=changes,
        switches={"no_speed": "do not measure steps per second at the end"},
        variant="group" if "group" in recipe.small else "",
    )
