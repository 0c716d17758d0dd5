"""Several hundred odd commands, drawn from a seed: options of all commands, with values that make no sense.

Prints how they ended. ``FB_FAIRSEQ_ODD=SEED:NUMBER`` draws others.
"""

import argparse
import importlib
import os
import random
import signal
from collections import Counter
from contextlib import suppress
from unittest import mock

import pytest

from fb_fairseq.commands import COMMANDS
from tests.cli.fairseq_commands import PLUGIN, TINY_MODEL, TRAINING, options, train
from tests.cli.parallel_text import TINY, preprocess
from tests.cli.parallel_text import train as train_translation
from tests.conftest import REPOSITORY

SEED, NUMBER = map(int, os.environ.get("FB_FAIRSEQ_ODD", "1:400").split(":"))
SECONDS = 60  # until a command counts as hanging
VALUES = (
    *("", "nan", "inf", "-inf", "-1", "0", "1", "1.5", "1e-320", "1e400", "99999999999999999999", "1000000000000"),
    *("abc", "True", "[]", "(1,", "1,2", ",", "{", "None", "nowhere/file", "/dev/null", ".", "a\nb", "ä", "$x", "%s"),
)
# Options that start other processes, wait for them, ask for long work, or reach for the internet.
LEFT_OUT = (
    "num_workers",
    "threads",
    "max_update",
    "local_rank",
    "device_id",
    "help",
    "wandb_project",
    "azureml_logging",
)
LEFT_OUT_BEGINNINGS = ("distributed", "nprocs", "heartbeat", "gpt2", "model_parallel", "pipeline", "aim")
HYDRA_SYNTAX = "$,(){}[]\n%ä"  # characters that hydra's command line gives a meaning, or refuses
LEFT_OUT_VALUES = ("bert", "gpt2")  # of --bpe: they download files


def captured_parser(function, *arguments):
    """The parser with which a function parses its arguments, before it does."""
    found = []

    def capture(parser, *unused):
        found.append(parser)
        raise SystemExit

    with mock.patch.object(argparse.ArgumentParser, "parse_args", capture), suppress(SystemExit):
        function(*arguments)
    return found[0]


def own_parser(words):
    """The parser of one of this package's commands, or of its subcommand."""
    parser = captured_parser(importlib.import_module(f"fb_fairseq.{COMMANDS[words[0]][0]}").main, [])
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return action.choices[words[1]]
    return parser


def stock_parser(kind, words):
    """The parser of a command of fairseq, with the options of the task, the architecture, … that are chosen."""
    from fairseq import options as stock

    parser = getattr(stock, f"get_{kind}_parser")()
    return captured_parser(stock.parse_args_and_arch, parser, list(map(str, words)))


def is_left_out(action):
    return action.dest in LEFT_OUT or action.dest.startswith(LEFT_OUT_BEGINNINGS) or not action.option_strings


def odd_option(draw, action):
    """An option with an odd value, or with one of its choices, as words."""
    name = draw.choice(action.option_strings)
    if action.nargs == 0:
        return [name]
    choices = [value for value in action.choices or () if value not in LEFT_OUT_VALUES]
    value = draw.choice(choices) if choices and draw.random() < 0.5 else draw.choice(VALUES)
    return [f"{name}={value}"] if name.startswith("--") else [name, str(value)]


@pytest.fixture(scope="module")
def files(byte_data, tmp_path_factory):
    """What the commands read."""
    folder = tmp_path_factory.mktemp("files")
    train(byte_data, folder / "lm", max_update=2)
    pairs = preprocess(folder)
    train_translation(pairs, folder / "translation", max_update=2)
    (folder / "text").write_text("some text\n")
    (folder / "log").write_text('{"loss": "3", "num_updates": "1"}\n{"valid_loss": "3", "valid_num_updates": "1"}\n')
    names = dict(bytes=byte_data, pairs=pairs, lm=folder / "lm/checkpoint_last.pt", text=folder / "text")
    return dict(names, translation=folder / "translation/checkpoint_last.pt", log=folder / "log", folder=folder)


def own_commands(files):
    """Right commands of this package: the words that choose the command, and the rest."""
    plot = ["--layer-weights", files["lm"], "--out", "x.png"]
    tiny = "--layers 1 --embed-dim 8 --heads 2 --ffn-dim 8 --span 4 --batch-size 2 --device cpu".split()
    return [
        (["preprocess-bytes"], ["--text", files["text"], "--destdir", "out"]),
        (["synthetic-tasks", "copy"], ["--out", "out", "--train", "20", "--valid", "4", "--test", "4"]),
        (["generate"], ["--path", files["lm"], "--data", files["bytes"], "--length", "3", "--cpu"]),
        (["evaluate-labels"], [files["bytes"], "--path", files["lm"]]),
        (["average-checkpoints"], ["--inputs", files["lm"], "--output", "x.pt"]),
        (["import-original"], [files["lm"], "--out", "x.pt"]),
        (["export"], [files["lm"], "--to", "out"]),
        (["import-transformers"], [files["folder"], "--out", "x.pt"]),
        (["score"], ["--sys", files["text"], "--ref", files["text"]]),
        (["compare"], [files["folder"]]),
        (["plot"], ["--curves", files["log"], *plot]),
        (["plot"], ["--attention", files["lm"], "--data", files["bytes"], "--tokens", "50", *plot]),
        (["env"], []),
        (["benchmark", "train"], [*tiny, "--block", "3", "--repeats", "1"]),
        (["benchmark", "memory"], [*tiny, "--block", "3"]),
        (["rl", "train"], ["--out", "out", "--small", "--frames", "100", "--cpu"]),
        (["rl", "speed"], ["--small", "--blocks", "1", "--cpu"]),
        (["rl", "evaluate"], ["--path", files["lm"], "--episodes", "2"]),
    ]


def stock_commands(files):
    """Right commands of fairseq: the command, the kind of its parser, and its arguments."""
    plugin = ["--user-dir", PLUGIN, "--cpu", "--num-workers", 0]
    lm = options({**TINY_MODEL, **TRAINING, "max_update": 2, "save_dir": "out"})
    translation = options({**TINY, "max_update": 2, "save_dir": "out"})
    read_lm = [files["bytes"], "--task", "streaming_lm", "--path", files["lm"]]
    stock_lm = "--task language_modeling --arch transformer_lm --max-tokens 99 --tokens-per-sample 20 --max-update 2"
    return [
        ("fairseq-train", "training", [files["bytes"], *lm, *plugin]),
        ("fairseq-train", "training", [files["pairs"], *translation, *plugin]),
        ("fairseq-train", "training", [files["bytes"], *stock_lm.split(), "--decoder-layers", 1, *plugin]),
        ("fairseq-eval-lm", "eval_lm", [*read_lm, *plugin]),
        ("fairseq-validate", "validation", [*read_lm, *plugin]),
        ("fairseq-generate", "generation", [files["pairs"], "--path", files["translation"], "--max-len-b", 3, *plugin]),
        ("fairseq-interactive", "interactive_generation", [files["pairs"], "--path", files["translation"], *plugin]),
    ]


def hydra_command(draw, files):
    """``fairseq-hydra-train`` with an odd override of the model.

    (What it composes before it loads the plugin, it checks and reports itself.)
    """
    import dataclasses

    from fb_fairseq.models.architectures import FeedbackTransformerLMConfig

    folder = REPOSITORY / "examples/language_modeling/hydra"
    words = ["--config-dir", folder, "--config-name", "feedback_small", f"task.data={files['bytes']}"]
    words += ["common.cpu=true", "dataset.batch_size=8", "task.valid_streams=4", "optimization.max_update=2"]
    words += ["checkpoint.save_dir=out", f"common.user_dir={PLUGIN}"]
    name = draw.choice([field.name for field in dataclasses.fields(FeedbackTransformerLMConfig)])
    is_there = f"  {name}:" in (folder / "feedback_small.yaml").read_text()
    value = draw.choice([value for value in VALUES if not set(value) & set(HYDRA_SYNTAX)])
    return ["fairseq-hydra-train", *words, f"{'' if is_there else '+'}model.{name}={value}"]


def odd_command(draw, files, parsers):
    """A right command with one or two odd options more, most of which repeat one of its own."""
    kind = draw.choice(["own"] * 3 + ["stock"] * 4 + ["hydra"])
    if kind == "hydra":
        return hydra_command(draw, files)
    if kind == "own":
        words, rest = draw.choice(own_commands(files))
        key, command = " ".join(words), ["fb-fairseq", *words, *rest]
        parser = parsers.setdefault(key, None) or own_parser(words)
    else:
        name, parser_kind, rest = draw.choice(stock_commands(files))
        key, command = f"{name} {rest[1:6]}", [name, *rest]
        parser = parsers.setdefault(key, None) or stock_parser(parser_kind, rest)
    parsers[key] = parser
    actions = [action for action in parser._actions if not is_left_out(action)]
    for action in draw.sample(actions, min(len(actions), draw.choice([1, 1, 2]))):
        command += odd_option(draw, action)
    return command


def how_it_ended(result):
    if result.status == -signal.SIGALRM:
        return "hang"
    if result.status < 0:
        return "killed"
    if any(line.startswith("Traceback") for line in result.errors):
        return "traceback"
    if result.status == 0:
        return "accepted"
    return "one line" if result.status == 2 and len(result.errors) == 1 else "several lines"


def is_fairseqs_own(result):
    """Whether it ended in a traceback through no code of this package but its wrappers: fairseq's own error."""
    places = [line for line in result.errors if line.startswith("  File ")]
    return bool(places) and "/fb_fairseq/" not in places[-1]


@pytest.mark.slow
def test_odd_commands(commands, files, tmp_path, capsys):
    draw, parsers = random.Random(SEED), {}
    counts, faults = Counter(), []
    for number in range(NUMBER):
        command = odd_command(draw, files, parsers)
        folder = tmp_path / str(number)
        folder.mkdir()
        result = commands.run(*command, seconds=SECONDS, folder=folder)
        owner = "own" if command[0] == "fb-fairseq" else "fairseq"
        ending = how_it_ended(result)
        counts[owner, ending] += 1
        last = (result.errors or [""])[-1]
        if ending in ("hang", "killed", "traceback") and not (owner == "fairseq" and is_fairseqs_own(result)):
            faults.append(f"{ending}: {' '.join(map(str, command))}\n    {last}")
        elif ending == "several lines":
            with capsys.disabled():
                print(f"\n{result.status}: {' '.join(map(str, command))}\n    " + "\n    ".join(result.errors[-3:]))
    with capsys.disabled():
        print(f"\nseed {SEED}: " + ", ".join(f"{owner}, {end}: {n}" for (owner, end), n in sorted(counts.items())))
    assert not faults, "\n".join(faults)
    for owner in ("own", "fairseq"):
        assert counts[owner, "one line"] > 0 and counts[owner, "accepted"] > 0, "the commands are odd, and run"
