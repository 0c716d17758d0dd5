"""Mistakes on the command lines of recipes, and in their data: one line, and nothing is written."""

import gzip
import os
import re
import subprocess

import pytest

from fb_fairseq.papers.runner.command import main, names
from tests.conftest import REPOSITORY

NUMBER = "give a number, 1 or more"


def refused(capsys, *arguments):
    """The one line with which a recipe ends."""
    capsys.readouterr()
    status = main([*map(str, arguments)])
    (line,) = capsys.readouterr().err.splitlines()
    assert status == 2 and line.startswith("error: ")
    return line


@pytest.fixture
def data(tmp_path):
    """Bad copies of the corpora."""
    folder = tmp_path / "data"
    (folder / "bad").mkdir(parents=True)
    (folder / "text").write_bytes(b"a few words of text.")
    (folder / "x.zip").write_bytes(b"PK")
    (folder / "bad/ptb.train.txt").write_bytes("é".encode("latin-1"))
    (folder / "bad/some.csv").write_bytes("article,highlights\né,é\n".encode("latin-1"))
    (folder / "bad/train.de.gz").write_bytes(gzip.compress("é\n".encode("latin-1")))
    for language in ("de", "en"):
        (folder / f"train.{language}").write_text("a line\n")
    return folder


@pytest.mark.parametrize(
    "words,message",
    [
        ("enwik8 --small /nowhere", "DATA /nowhere: no such file; give enwik8"),
        ("text8 {}/text", "20 bytes, md5 .*text8 has 100000000 bytes, md5 3bea1919949baf155f99411df5fada7e"),
        ("enwik8 {}/text", "20 bytes, md5 .*enwik8 has 100000000 bytes.*intact copy, or --small DATA"),
        ("char_ptb --small /nowhere", "PTB /nowhere: no ptb.train.txt"),
        ("wikitext103 {}/text", "DATA .*give wikitext-103-v1.zip"),
        ("wikitext103 {}/x.zip", ".*x.zip: .*wikitext-103-v1.zip has md5 9ddaacaf"),
        ("wikitext103 --small", "DATA is missing; give it, or --help for what it is"),
        (
            "wikitext103 --small /nowhere",
            "DATA /nowhere: no train.txt, train.txt.gz or wiki.train.tokens in this folder",
        ),
        ("enwik8 --small {}", "DATA .*: no such file"),
        ("enwik8 --small {}/x.zip", ".*x.zip: cannot be unpacked; use an intact copy with enwik8"),
        ("char_ptb --small {}/bad", "ptb.train.txt: not UTF-8 text, or damaged; convert it"),
        ("word_problem --models mambo", "--models mambo: unknown; choose from feedback, transformer, lstm, mamba"),
        ("word_problem --group S4", "--group S4: unknown; choose from parity, Z60, A4xZ5, S3, A5, S5"),
        ("word_problem --lrs 0", "--lrs 0: give a number above 0, such as 0.002"),
        ("recall --group A5", "--group: unknown option; python -m fb_fairseq recipe recall --help lists the options"),
        ("iwslt14_de_en --small /nowhere", "DATA /nowhere: no train.de.gz in this folder; give Multi30k"),
        ("iwslt14_de_en /nowhere", "/nowhere/train.de: no such file"),
        ("iwslt14_de_en {}", "train.de: 1 lines, not 160239; use the corpus named in the README, or --small"),
        ("iwslt14_de_en --small {}/bad", "train.de.gz: not UTF-8 text, or damaged; convert it"),
        ("wmt14_en_de /nowhere", "/nowhere/train.tok.clean.bpe.32000.en: no such file"),
        ("cnn_dm --small {}", r"no \*.csv or \*.csv.gz in this folder"),
        ("cnn_dm {}", "no train.csv or train.csv.gz in this folder"),
        ("cnn_dm --small {}/bad", "some.csv: not UTF-8 text, or damaged; convert it"),
        ("memory_composition --full", "PTB is missing; give it"),
        ("memory_composition --small {}", "PTB .*: no ptb.train.txt or ptb.train.txt.gz"),
    ],
)
def test_data(tmp_path, data, capsys, words, message):
    line = refused(capsys, *words.format(data).split(), "--out", tmp_path / "out")
    assert re.search(message, line), line
    assert not (tmp_path / "out").exists(), "no half-written data"


@pytest.mark.parametrize(
    "words,message",
    [
        ("enwik8|--epochs|3", "--epochs: unknown option; python -m fb_fairseq recipe enwik8 --help lists the options"),
        ("enwik8|--steps|learn", "--steps learn: unknown; choose from prepare, train"),
        ("enwik8|--layers|3", "--layers: only with --small"),
        ("enwik8|--updates|1 2", f"--updates 1 2: {NUMBER}"),
        ("enwik8|--updates|12345678901", f"--updates 12345678901: {NUMBER}, with at most nine digits"),
        ("enwik8|x|--updates", "--updates needs a value"),
        ("enwik8|-data", "-data: unknown option"),
        ("enwik8|x|y", "y: only one DATA is allowed"),
        ("enwik8|--small|--models|*", r"--models \*: use only letters, digits"),
        (
            "enwik8|--small|--models|spam",
            "--models spam: unknown; choose from feedback_transformer_lm.*, initialised or another arch",
        ),
        ("enwik8|--small|--update-freq|3", "--update-freq 3: 64 streams cannot be divided among 1"),
        ("enwik8|--nodes|2", "--node-rank is missing: give this machine's number, from 0 to 1"),
        ("enwik8|--lr|0", "--lr 0: give a number above 0, such as 0.002"),
        ("enwik8|--lr|fast", "--lr fast: give a number above 0, such as 0.002"),
        ("enwik8|--|--lr|1", "--lr: give it before the --; fine-tuning then has a tenth of it"),
        ("enwik8|--|--fp16|--lr=1", "--lr: give it before the --"),
        ("enwik8|--out|a:b", "--out .*/a:b: fairseq splits paths at "),
        ("enwik8|--out|${b}", r"--out .*/\${b}: fairseq expands"),
        ("char_ptb|--small|--layers|2 x", f"--layers x: {NUMBER}"),
        ("persistent_memory|--small|--models|N1 all", "--models all: unknown; give N<number>"),
        ("wikitext103_ablation|--models|best", "--models best: unknown; choose from transformer-post"),
        ("iwslt14_de_en|--projections|none", "--projections none: unknown"),
        ("random_walk|--models|spam", "--models spam: unknown; give architectures.*or memory compositions"),
        ("random_walk|--curriculum|9", "--curriculum: random_walk has none; only algorithmic"),
        ("copy|--curriculum|two", f"--curriculum two: {NUMBER}"),
        ("copy|text", "text: unexpected argument, this recipe needs no data"),
        ("copy|--seeds|1 2|--seed|1", "--seed, --seeds: give one of them"),
        ("copy|--seeds|1 1|--jobs|2", "--jobs 2: only with several --seeds"),
        ("copy|--seed|one", f"--seed one: {NUMBER}"),
        ("memory_composition|--layers|2|x", "--layers 2: the papers' setting for PTB has 6"),
        ("memory_composition|--small|--|--fp16", "--: this recipe takes no further options"),
        ("maze|--agents|rnn", "--agents rnn: unknown; choose from feedback, transformer, lstm"),
        ("maze|data", "data: unexpected argument, this recipe needs no data"),
        ("quickstart|--minutes|5", "--minutes 5: give 2, 10 or 60"),
        ("quickstart|--text|/nowhere", "--text /nowhere: no such file, or an empty one"),
        ("char_ptv", "char_ptv: unknown recipe; did you mean char_ptb"),
        ("spam", "spam: unknown recipe; python -m fb_fairseq recipe lists them"),
        ("nowhere.py", "nowhere.py: no such file; give the file of a recipe"),
    ],
)
def test_options(tmp_path, capsys, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    name, *rest = words.split("|")
    line = refused(capsys, name, *(["--print"] if name in names() else []), *rest)
    assert re.search(message, line), line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("out", ["text/out", "text/a\nb"])
def test_output_folder(data, capsys, out):
    line = refused(capsys, "enwik8", "--small", data / "text", "--out", data / out)
    assert re.search("--out .*: .*text is a file; give the name of a folder", line)
    assert (data / "text").is_file()


def test_a_folder_with_other_files(data, tmp_path, capsys, monkeypatch):
    """They are neither replaced nor removed."""
    folder = tmp_path / "project"
    (folder / "data").mkdir(parents=True)
    (folder / "data/mine").write_text("mine")
    monkeypatch.chdir(folder)
    for name in (["quickstart", "--text", data / "text"], ["enwik8", "--small", data / "text"], ["maze"]):
        line = refused(capsys, *name, "--out", ".")
        assert line == f"error: --out {folder}: has files that this command has not written; give an empty folder"
    assert [path.name for path in folder.rglob("*")] == ["data", "mine"]


def test_options_of_the_data(tmp_path, capfd):
    """The command that generates it refuses them: tests/papers/toy_tasks."""
    assert main(["copy", "--length", "1", "--train", "90", "--out", str(tmp_path / "out")]) == 2
    *_, before, last = capfd.readouterr().err.splitlines()
    assert "error: copy: too few different sequences of this size" in before
    assert last.startswith("error: generating the data failed") and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "text,message",
    [
        ("x = (", "line 1: .*; correct it"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'; FB_FAIRSEQ_DEBUG=1"),
        ("recipe = 1", "has no variable RECIPE with a recipe; docs/recipes.md shows one"),
    ],
)
def test_own_files(tmp_path, capsys, text, message):
    (tmp_path / "mine.py").write_text(text)
    assert re.search(f"error: .*mine.py(: |, ){message}", refused(capsys, tmp_path / "mine.py"))


def test_an_option_that_is_a_file(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-data").touch()
    assert "-data: looks like an option; write ./-data for the file or folder" in refused(capsys, "enwik8", "-data")


def test_a_folder_without_data(tmp_path, capsys):
    line = refused(capsys, "enwik8", "--small", "--steps", "train", "--out", tmp_path / "out")
    assert line.endswith("out/data/dict.txt does not exist; run step prepare first")


def test_help(capsys):
    """The list, and every recipe's options."""
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert all(f"  {name} " in listed for name in names())
    for name in names():
        with pytest.raises(SystemExit) as stop:
            main([name, "--help"])
        assert stop.value.code == 0 and "--print" in capsys.readouterr().out


@pytest.mark.parametrize("script", ["quickstart.sh", "recipe.sh", "synthetic_tasks/sweep.sh", "environment.sh"])
def test_scripts(tmp_path, script):
    """Mistakes are reported before anything is installed; --help prints the comment."""
    environment = {**os.environ, "FB_FAIRSEQ_VENV": str(tmp_path / "venv")}

    def run(*arguments):
        command = ["bash", str(REPOSITORY / "examples" / script), *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)

    done = run("--epochs", "3")
    expected = {"recipe.sh": "the recipe is missing", "synthetic_tasks/sweep.sh": "the task is missing"}
    expected["environment.sh"] = "not a script of its own; run a recipe"
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and expected.get(script, "--epochs: unknown option") in line
    assert not list(tmp_path.iterdir())
    if script != "environment.sh":
        assert "bash examples/" in run("--help").stdout
