"""The quickstart of the README, as a new user would run it."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from tests.cli.recipes import assert_prints_training
from tests.cli.test_recipes import ODD_NAME
from tests.conftest import REPOSITORY


def quickstart(*arguments, environment=None, repository=REPOSITORY):
    return subprocess.run(
        ["bash", str(repository / "examples/quickstart.sh"), *map(str, arguments)],
        env={**os.environ, "FB_FAIRSEQ_VENV": sys.prefix, "OMP_NUM_THREADS": "1", **(environment or {})},
        capture_output=True,
        text=True,
        timeout=300,
        cwd="/",
    )


def test_own_text(tmp_path):
    """With text, output and the repository itself in a folder with an odd name."""
    if not (pathlib.Path(sys.prefix) / ".fb_fairseq").exists():
        pytest.skip("this environment was not created by tests/run.sh")
    folder = tmp_path / ODD_NAME
    for part in ("examples", "fb_fairseq"):
        shutil.copytree(REPOSITORY / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", "figures"))
    shutil.copy(REPOSITORY / "setup.py", folder)
    text = folder / "my text.txt"
    text.write_bytes(b"A line of text, and another one.\n" * 3000)
    done = quickstart("--text", text, "--updates", 20, repository=folder)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    bits = float(re.search(r"Test split: ([\d.]+) bits per byte", done.stdout).group(1))
    assert 0 < bits < 7.9
    out = folder / "runs/quickstart"
    assert (out / "quickstart.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "checkpoints/checkpoint_best.pt").exists()
    assert "update 20 of 20, loss " in done.stderr
    again = quickstart("--text", text, "--updates", 20, repository=folder)
    assert again.returncode == 0 and "checkpoints: already trained for 20 updates" in again.stdout
    assert f"Test split: {bits:.3f} bits per byte" in again.stdout and "== prepare: done already" in again.stdout
    assert "== Sampling from the model\nA line of text, and another one." in again.stdout
    options = ["--text", text, "--updates", 20]
    assert_prints_training("quickstart.sh", out / "checkpoints.log", *options, repository=folder)
    other = quickstart("--text", text, "--updates", 30, repository=folder)
    (line,) = other.stderr.splitlines()
    assert other.returncode == 1 and "holds a model with another --text, --minutes or --updates" in line
    assert (out / "checkpoints/checkpoint_best.pt").exists()


@pytest.mark.parametrize(
    "arguments,environment,message",
    [
        (["--text", "/nowhere"], {}, "error: --text /nowhere"),
        (["--text", "/"], {}, "error: --text /: no such file"),
        (["--text"], {}, "error: --text needs a value"),
        (["--text", "/etc/passwd", "--out", "/etc/passwd/out"], {}, "error: --out /etc/passwd/out: cannot create"),
        ([], {"FB_FAIRSEQ_VENV": "{}/a:b"}, 'a:b: PATH is split at ":"'),
        ([], {"FB_FAIRSEQ_VENV": "{}/$(exit)"}, "$(exit): set FB_FAIRSEQ_VENV to a folder without"),
        (["--updates", "many"], {}, "error: --updates many"),
        (["--minutes", "5"], {}, "error: --minutes 5: give 2, 10 or 60"),
        (["--epochs", "3"], {}, "error: --epochs"),
        ([], {"PYTHON": "/bin/false", "FB_FAIRSEQ_VENV": "{}/venv"}, "error: PYTHON=/bin/false"),
    ],
)
def test_bad_input(tmp_path, arguments, environment, message):
    environment = {key: value.format(tmp_path) for key, value in environment.items()}
    done = quickstart("--out", tmp_path / "out", *arguments, environment=environment)
    (line,) = done.stderr.splitlines()
    assert done.returncode != 0 and message in line
    assert not list(tmp_path.iterdir())


def test_more_minutes():
    """A larger model and more updates, in a folder of its own."""
    printed = [quickstart("--print", "--minutes", minutes).stdout for minutes in (2, 10, 60)]
    trainings = [re.search(r"^fairseq-train (?:.*\\\n)*.*", text, re.M)[0] for text in printed]
    for option in ("--decoder-embed-dim", "--decoder-ffn-embed-dim", "--max-update"):
        values = [int(re.search(rf"{option} (\d+)", training)[1]) for training in trainings]
        assert values == sorted(set(values)), option
    folders = [re.search(r"--save-dir (\S+)", training)[1] for training in trainings]
    assert folders == [f"runs/quickstart{end}/checkpoints" for end in ("", "-10min", "-60min")]


def test_an_environment_without_fairseq_is_refused(tmp_path):
    """One with a version of Python on which the package installs, but not fairseq."""
    python = tmp_path / "venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho 3.13\n")
    python.chmod(0o755)
    done = quickstart("--setup-only", environment={"FB_FAIRSEQ_VENV": str(tmp_path / "venv")})
    (line,) = done.stderr.splitlines()
    assert done.returncode != 0 and line.startswith(
        f"error: {tmp_path}/venv has Python 3.13, on which fairseq does not"
    )
