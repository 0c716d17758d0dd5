"""What recipes print, and the commands in it."""

import contextlib
import dataclasses
import hashlib
import io
import re
import shlex
from unittest import mock

import pytest
from fairseq import options

import fb_fairseq.models  # noqa: F401  registers the architectures
import fb_fairseq.optim  # noqa: F401
import fb_fairseq.tasks  # noqa: F401
from fb_fairseq.papers.steps import command, machine, recipes
from tests.conftest import REPOSITORY

ONE_SIZE = [name for name in recipes.names() if recipes.find(name).sizes == "one"]
CALLS = [[name] for name in ONE_SIZE] + [["quickstart", "--minutes", minutes] for minutes in ("10", "60")]
CALLS += [[name, size] for name in recipes.names() if name not in ONE_SIZE for size in ("--small", "--full")]
# With options that change steps; each option of each kind of experiment at least once.
CHANGED = [
    "quickstart --updates 70 --text setup.py",
    "char_ptb --small --layers '2 4' --seeds '2 3' --updates 70 --lr 0.01 --finetune-updates 9 --valid-streams 8 "
    "--test-streams 5 --update-freq 2 --processes 4 --launch srun -- --fp16",
    "char_ptb --small --models streaming_lstm_lm",
    "enwik8 --small --models 'relative_transformer_lm initialised' --layers 2",
    "enwik8 --small --models streaming_lstm_lm",
    "enwik8 --full --models 'feedback_transformer_lm_enwik8 initialised' --update-freq 2",
    "persistent_memory --small --models 'N0 N7' --updates 70",
    "wikitext103 --small --models 'feedback_transformer_lm streaming_lstm_lm' --layers '2 4' --finetune-updates 0",
    "wikitext103_training_time --full --seeds '2 3'",
    "iwslt14_de_en --full --models 'initialised transformer feedback' --layers '1 2' --seeds '2 3' --updates 70 "
    "--update-freq 2 --projections shared",
    "wmt14_en_de --full --models 'deep-encoder transformer' --layers 2 --projections per-layer",
    "cnn_dm --full --models transformer --processes 2",
    "corridor --agents 'feedback lstm' --spans '3 5' --seeds '2 3' -- --minutes 1",
    "memory_composition --small --seeds 2 --finetune-updates 9 --layers 2 --walk-updates 6 --updates 70",
    "memory_composition --full --finetune-updates 0",
    "algorithmic --models 'streaming_lstm_lm feedback_transformer_lm' --spans '3 5' --layers '1 2' --seeds '2 3' "
    "--updates 70 --update-freq 2 --fixed-span --train 50 --valid 20 --test 30 --curriculum '5 9' --mix 0.5",
    "copy --full --spans 5 --fixed-span --test-length 20 --curriculum 4",
    "blocked_random_walk --full --seeds '2 3' --steps 20 --blocks 2 --processes 2",
    "recall --models 'feedback lstm average layer1' --spans '3 5' --layers '1 2' --lrs '0.1 0.01' --seeds '2 3' "
    "--updates 70 --longest 40 --test-sequences 30 --curriculum mixed",
    "word_problem --full --models 'transformer previous' --spans 5 --no-speed --group S3 -- --width 8",
]


def printed(name: str, *arguments, gpus: int = 0) -> str:
    """What a recipe prints with ``--print`` on a machine with so many GPUs."""
    text = io.StringIO()
    words = list(map(str, arguments))
    split = words.index("--") if "--" in words else len(words)
    with contextlib.redirect_stdout(text), mock.patch.object(machine, "gpus", lambda: gpus):
        command.main([name, *words[:split], "--print", *words[split:]])
    return text.getvalue()


def refuses(message: str, *arguments) -> None:
    """Assert that a command line is refused with this line."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), pytest.raises(SystemExit) as stop:
        printed(*arguments)
    (line,) = errors.getvalue().splitlines()
    assert stop.value.code == 2 and re.search(message, line), line


def commands(text: str, *starts: str) -> list[list[str]]:
    """The words of each printed command that begins so, up to ``2>&1``. (Names must not hold line breaks.)"""
    lines = re.sub(r"\\\n +", "", text).splitlines()
    found = [shlex.split(line) for line in lines if line.startswith(starts or "") and line and line[0] != "#"]
    return [command[: (command + ["2>&1"]).index("2>&1")] for command in found]


def values(text: str, option: str, start: str = "fairseq-train ") -> list[str]:
    """The values of an option in the printed commands that have it."""
    found = [command for command in commands(text, start) if option in command]
    return [command[command.index(option) + 1] for command in found]


def trainings(text: str) -> list:
    """The options of each printed training, with the values of its architecture."""
    parsed = []
    for _, *words in commands(text, "fairseq-train "):
        words[words.index("--user-dir") + 1] = str(REPOSITORY / "fb_fairseq")
        parsed.append(options.parse_args_and_arch(options.get_training_parser(), words))
    return parsed


def digest(*call) -> str:
    """A digest of all that a call's steps are, the same on all machines."""
    with mock.patch.object(command, "show") as show:
        printed(*call)
    (_, steps, _), _ = show.call_args
    lines = [f"{field.name}: {getattr(step, field.name)}" for step in steps for field in dataclasses.fields(step)]
    text = re.sub(r"'--workers', '?\d+'?", "", "\n".join(lines).replace(f"{REPOSITORY}/", ""))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
