"""Commands on files and folders with names that a shell, a format string or an option parser would take apart."""

import json

import pytest

from fb_fairseq import byte_codec
from tests.cli.conftest import made_up_text
from tests.cli.fairseq_commands import PLUGIN, training_arguments

ODD = "a b'\"$(touch X)`touch X`;&|*?[z]~%d#\\é=,\n-c"
TASK = ["--user-dir", PLUGIN, "--task", "streaming_lm", "--cpu"]


@pytest.fixture(scope="module")
def odd(commands, tmp_path_factory):
    """A folder with such a name, in which a model was trained on data of such a name."""
    folder = tmp_path_factory.mktemp("names") / ODD
    folder.mkdir()
    (folder / "text").write_bytes(made_up_text(3000, 1))
    done(commands.run("fb-fairseq", "preprocess-bytes", "--text", folder / "text", "--destdir", folder / "data"))
    arguments = training_arguments(folder / "data", folder / "ck", max_update=3, log_file=folder / "log")
    done(commands.run("fairseq-train", *arguments, "--user-dir", PLUGIN))
    return folder


def done(result):
    assert result.status == 0, result.errors[-5:]
    return result.out


def test_fairseqs_commands(commands, odd):
    path = ["--path", odd / "ck/checkpoint_last.pt"]
    assert any("Loss (base 2)" in line for line in done(commands.run("fairseq-eval-lm", odd / "data", *TASK, *path)))
    assert any("valid on" in line for line in done(commands.run("fairseq-validate", odd / "data", *TASK, *path)))
    (odd / "prompt").write_text("abc\n")
    arguments = ["--input", odd / "prompt", "--max-len-b", 9, "--beam", 1]
    lines = done(commands.run("fairseq-interactive", odd / "data", *TASK, *path, *arguments))
    symbols, text = (next(line for line in lines if line.startswith(kind)).split("\t")[2] for kind in ("H-0", "D-0"))
    assert byte_codec.escape(byte_codec.decode(symbols.split())) == text


def test_own_commands(commands, odd):
    model = odd / "ck/checkpoint_last.pt"
    for name in ("checkpoint1.pt", "checkpoint2.pt"):
        (odd / name).write_bytes(model.read_bytes())
    last = ["--num-epoch-checkpoints", 2]
    done(commands.run("fb-fairseq", "average-checkpoints", "--inputs", odd, *last, "--output", odd / "mean.pt"))
    curves = ["--curves", f"a name={odd / 'log'}", "--metric", "loss"]
    done(commands.run("fb-fairseq", "plot", *curves, "--layer-weights", odd / "mean.pt", "--out", odd / "x.png"))
    sizes = ["--train", 9, "--valid", 2, "--test", 2]
    done(commands.run("fb-fairseq", "synthetic-tasks", "copy", *sizes, "--out", odd / "copy"))
    done(commands.run("fb-fairseq", "rl", "train", "--small", "--cpu", "--frames", 64, "--out", odd / "rl"))
    done(commands.run("fb-fairseq", "rl", "plot", odd / "rl", "--metric", "fps", "--out", odd / "rl.png"))
    for name in ("hyp", "ref"):
        (odd / name).write_text("a b c d\n")
    (line,) = done(commands.run("fb-fairseq", "score", "--sys", odd / "hyp", "--ref", odd / "ref"))[-1:]
    assert json.loads(line)
    for name in ("mean.pt", "x.png", "copy/train.input", "rl/checkpoint.pt", "rl.png"):
        assert (odd / name).exists()


def test_names_that_begin_with_a_dash(commands, odd):
    """Give them as ``./-name``, or as ``--option=-name``."""
    (odd / "-text").write_bytes(made_up_text(3000, 2))
    done(commands.run("fb-fairseq", "preprocess-bytes", "--text=-text", "--destdir=-data", folder=odd))
    arguments = training_arguments("./-data", "", max_update=1, disable_validation=True)
    done(commands.run("fairseq-train", *arguments, "--user-dir", PLUGIN, "--save-dir=-ck", folder=odd))
    assert (odd / "-ck/checkpoint_last.pt").exists() and not (odd / "X").exists()
