"""What recipes print, and the commands in it."""

import contextlib
import io
import re
import shlex

from fairseq import options

import fb_fairseq.models  # noqa: F401  registers the architectures
import fb_fairseq.optim  # noqa: F401
import fb_fairseq.tasks  # noqa: F401
from fb_fairseq.papers.runner.command import find
from tests.conftest import REPOSITORY


def printed(name: str, *arguments) -> str:
    """What a recipe prints with ``--print``; raises what it raises."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        find(name).main(["--print", *map(str, arguments)])
    return text.getvalue()


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
