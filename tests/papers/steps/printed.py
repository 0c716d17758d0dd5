"""What recipes print, and the commands in it."""

import contextlib
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


def digest(text: str) -> str:
    """A digest of all printed commands, the same on all machines."""
    found = [" ".join(command) for command in commands(text) if command[0] not in ("cd", "export")]
    lines = re.sub(r"--workers \d+", "", "\n".join(found).replace(f"{REPOSITORY}/", ""))
    return hashlib.sha256(lines.encode()).hexdigest()[:12]
