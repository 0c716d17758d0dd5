"""The step ``prepare``: data that appears only when it is complete, and that models were trained on stays."""

import os
import subprocess
import sys

import pytest

from fb_fairseq.errors import UserError
from fb_fairseq.papers.runner.data import prepare_data
from fb_fairseq.papers.runner.language_modeling import start_over, started_from
from fb_fairseq.papers.runner.shell import Shell
from tests.conftest import REPOSITORY

DONE, PREPARED = "== prepare: done already\n", "== prepare\npreparing\n"


class Stopped(Exception):
    """Preparing was stopped."""


@pytest.fixture
def prepare(tmp_path, capsys):
    """Prepares the folder tmp_path/input in OUT, tmp_path/out, with a setting; returns what is printed."""
    (tmp_path / "input").mkdir()
    (tmp_path / "input/text").write_text("abc")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/log").touch()

    def run(setting, stop=False):
        def write(shell, source, folder):
            print("preparing")
            with open(f"{source}/text") as text, open(f"{folder}/train.bin", "w") as file:
                file.write(text.read().upper())
            if stop:
                raise Stopped
            with open(f"{folder}/dict.txt", "w") as file:
                file.write("1\n")

        out = str(tmp_path / "out")
        prepare_data(Shell("/"), out, f"{out}/data", setting, str(tmp_path / "input"), write)
        return capsys.readouterr().out

    return run


def test_data_are_prepared_once(tmp_path, prepare):
    """Until the input's contents, the setting or the data change."""
    data = tmp_path / "out/data"
    assert prepare("small") == PREPARED and prepare("small") == DONE
    os.utime(tmp_path / "input/text", (0, 0))
    assert prepare("small") == DONE, "contents, not times"
    for change in (
        lambda: (tmp_path / "input/text").write_text("abd"),
        lambda: (tmp_path / "input/more").write_text(""),
        lambda: (data / "dict.txt").unlink(),
        lambda: (data / "train.bin").write_text(""),
    ):
        change()
        assert prepare("small") == PREPARED and prepare("small") == DONE
    assert prepare("full") == PREPARED and prepare("full") == DONE
    assert (data / "train.bin").read_text() == "ABD" and not (tmp_path / "out/data.tmp").exists()


def test_interrupted_prepare_is_not_done(tmp_path, prepare):
    with pytest.raises(Stopped):
        prepare("small", stop=True)
    assert not (tmp_path / "out/data").exists()
    prepare("small")
    (tmp_path / "input/text").write_text("other")
    with pytest.raises(Stopped):
        prepare("small", stop=True)
    assert (tmp_path / "out/data/train.bin").read_text() == "ABC", "the old data stay"
    assert prepare("small").endswith(PREPARED) and (tmp_path / "out/data/train.bin").read_text() == "OTHER"


def test_data_of_trained_models_stay(tmp_path, prepare):
    """The same data are accepted, other data are not."""
    prepare("small")
    (tmp_path / "out/model").mkdir()
    (tmp_path / "out/model/checkpoint_best.pt").touch()
    prepare("full")  # made in another way, but the same
    (tmp_path / "input/text").write_text("other")
    for setting, which in (("full", ""), ("small", r" \(full\)")):
        with pytest.raises(UserError, match=f"holds models of other data{which}; choose another"):
            prepare(setting)
    assert (tmp_path / "out/data/train.bin").read_text() == "ABC" and not (tmp_path / "out/data.tmp").exists()
    (tmp_path / "input/text").write_text("abc")
    assert prepare("full").endswith(DONE)


def test_data_is_prepared_by_one_run(tmp_path, prepare):
    """A second run on the same folder stops at once; what a killed run has left is replaced."""
    folder = tmp_path / "out/data.tmp"
    program = "import sys; from fb_fairseq.files import lock_folder; lock_folder(*sys.argv[1:]); print(); input()"
    command = [sys.executable, "-c", program, "--out", str(folder)]
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with subprocess.Popen(command, cwd=REPOSITORY, **pipes) as other:
        other.stdout.readline()
        with pytest.raises(UserError, match=f"data.tmp: another run is writing to this folder .process {other.pid} on"):
            prepare("small")
        other.kill()
    (folder / "half").write_text("left")
    assert prepare("small").endswith(PREPARED)
    assert not folder.exists() and sorted(os.listdir(tmp_path / "out/data")) == ["dict.txt", "train.bin"]


def test_fine_tuning_starts_from_one_checkpoint(tmp_path):
    """If this has changed, everything is removed."""
    checkpoint, run = tmp_path / "m/checkpoint_best.pt", tmp_path / "m-finetuned"
    checkpoint.parent.mkdir()
    checkpoint.write_bytes(b"abc")
    for name in ("m-finetuned.log", "m.log"):
        (tmp_path / name).touch()
    run.mkdir()
    assert not started_from(str(run), str(checkpoint))
    start_over(str(run), str(checkpoint))
    assert started_from(str(run), str(checkpoint))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m", "m-finetuned.from", "m.log"]
    checkpoint.write_bytes(b"abcd")
    assert not started_from(str(run), str(checkpoint))
