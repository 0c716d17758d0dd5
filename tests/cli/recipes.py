"""Runs recipes from their data to their results, in this process; their commands are forked from a warm one."""

import contextlib
import csv
import gzip
import io
import os
import re
from typing import NamedTuple

import pytest

from fb_fairseq.papers.runner.command import main
from fb_fairseq.papers.runner.processes import RUNNING
from fb_fairseq.papers.runner.shell import Shell
from tests.cli.conftest import made_up_text
from tests.cli.parallel_text import pairs
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
    from tests.papers.runner.printed import commands as found

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


def made_up_parallel_corpus(folder, name):
    """Write what a recipe's --small takes as DATA, and return its path."""
    folder.mkdir()
    if name == "cnn_dm":
        with open(folder / "some.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["article", "highlights", "id"])
            for n in range(330):
                article = made_up_text(400, n).decode()
                writer.writerow([article, "\n".join(article.split("\n")[:2]), n])
        return folder
    for seed, (split, number) in enumerate((("train", 300), ("val", 20), ("test_2016_flickr", 20))):
        for language, text in zip(("de", "en"), zip(*pairs(number, seed))):
            with gzip.open(folder / f"{split}.{language}.gz", "wt") as file:
                file.write("\n".join(text) + "\n")
    return folder


def comparable(command):
    """The words of a command, with paths in the repository relative to it."""
    return [re.sub(rf"{re.escape(str(REPOSITORY))}/", "", word) for word in command]
