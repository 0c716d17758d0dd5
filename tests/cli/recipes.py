"""Runs recipes from their data to their results, in this process; their commands are forked from a warm one."""

import contextlib
import io
import os
import re
from typing import NamedTuple

import pytest

from fb_fairseq.recipes.command import main
from fb_fairseq.recipes.processes import RUNNING
from fb_fairseq.recipes.shell import Shell
from tests.cli.conftest import made_up_text
from tests.conftest import REPOSITORY

PNG = b"\x89PNG"


class Done(NamedTuple):
    """How a recipe ended."""

    status: int
    out: str
    errors: str


@pytest.fixture
def recipe(commands, capfd, monkeypatch):
    """Runs a recipe with the programs of the command server: ``recipe(name, *arguments)``. It has to succeed, unless
    ``fails=True``."""
    environment = Shell.environment

    def warm(shell):
        found = environment(shell)
        return {**found, "PATH": os.pathsep.join([str(commands.programs), found["PATH"]]), "OMP_NUM_THREADS": "1"}

    monkeypatch.setattr(Shell, "environment", warm)
    monkeypatch.chdir(REPOSITORY)
    RUNNING.interrupted = False

    def run(name, *arguments, fails=False):
        capfd.readouterr()
        status = main([name, *map(str, arguments)])
        out, errors = capfd.readouterr()
        assert (status != 0) == fails, out[-2000:] + errors[-2000:]
        return Done(status, out, errors)

    return run


def printed(name, *arguments):
    """The trainings that a recipe prints: words of the commands."""
    from tests.recipes.printed import commands as found

    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        assert main([name, *map(str, arguments), "--print"]) == 0
    return found(text.getvalue(), "fairseq-train ")


def made_up_corpus(name, folder):
    """Write what the recipe takes as DATA, and return its path."""
    if name in ("enwik8", "text8"):
        text = made_up_text(20_000, 1)
        if name == "text8":
            text = b'<mediawiki>\n<page>\n<text xml:space="preserve">' + text + b"[[link|20 words]]</text>\n</page>"
        (folder / "text").write_bytes(text)
        return folder / "text"
    for split in ("train", "valid", "test"):
        text = made_up_text(12_000, 1)
        if name == "char_ptb":
            text += b"the company\n"
        else:  # more words than the last cutoff of the adaptive softmax
            text += b" The " + b" ".join(b"word%d" % i for i in range(8100)) + b"\n"
        (folder / f"{'ptb.' if name == 'char_ptb' else ''}{split}.txt").write_bytes(text)
    return folder


def comparable(command):
    """The words of a command, with paths in the repository relative to it."""
    return [re.sub(rf"{re.escape(str(REPOSITORY))}/", "", word) for word in command]
