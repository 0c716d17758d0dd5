"""The quickstart of the README, as a new user would run it."""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from tests.cli.odd_names import ODD_NAME
from tests.cli.recipes import PNG, recipe  # noqa: F401
from tests.conftest import REPOSITORY
from tests.papers.runner.printed import printed, values


def quickstart(*arguments, environment=None, repository=REPOSITORY):
    return subprocess.run(
        ["bash", str(repository / "examples/quickstart.sh"), *map(str, arguments)],
        env={**os.environ, "FB_FAIRSEQ_VENV": sys.prefix, "OMP_NUM_THREADS": "1", **(environment or {})},
        capture_output=True,
        text=True,
        timeout=300,
        cwd="/",
    )


def test_own_text(tmp_path, recipe):  # noqa: F811
    """With text, output and the repository itself in a folder with an odd name."""
    if not (pathlib.Path(sys.prefix) / ".fb_fairseq").exists():
        pytest.skip("this environment was not created by tests/run.sh")
    folder = tmp_path / ODD_NAME
    for part in ("examples", "fb_fairseq"):
        shutil.copytree(REPOSITORY / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", "figures"))
    shutil.copy(REPOSITORY / "setup.py", folder)
    text = folder / "my text.txt"
    text.write_bytes(b"A line of text, and another one.\n" * 1000)
    done = quickstart("--text", text, "--updates", 20, repository=folder)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    bits = float(re.search(r"Test split: ([\d.]+) bits per byte", done.stdout).group(1))
    assert 0 < bits < 7.9
    out = folder / "runs/quickstart"
    assert (out / "quickstart.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "checkpoints/checkpoint_best.pt").exists()
    assert "update 20 of 20, loss " in done.stderr
    options = ["--text", text, "--out", out]
    again = recipe("quickstart", *options, "--updates", 20).out
    assert "checkpoints: already trained for 20 updates" in again and "== prepare: done already" in again
    assert f"Test split: {bits:.3f} bits per byte" in again
    assert "== Sampling from the model\nA line of text, and another one." in again
    other = recipe("quickstart", *options, "--updates", 30, fails=True).errors
    assert "holds a model with another --text, --minutes or --updates" in other
    assert (out / "checkpoints/checkpoint_best.pt").exists()


def test_where_pip_has_installed_the_package_without_matplotlib(tmp_path, recipe, monkeypatch):  # noqa: F811
    """It runs in the current folder, with the programs of its own environment, and says how to get the figure."""
    (tmp_path / "text.txt").write_bytes(b"A line of text, and another one.\n" * 300)
    monkeypatch.chdir(tmp_path)
    found, arguments = importlib.util.find_spec, ("quickstart", "--text", "text.txt", "--updates", 2)
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None if name == "matplotlib" else found(name))
        lines = recipe(*arguments).out.splitlines()
    remedy = "pip install 'fb_fairseq[plot]', then run the same command again"
    figure = lines.index(f"== No figure: matplotlib is not installed; {remedy}")
    assert lines[figure + 1] == "== Sampling from the model"
    assert re.match(r"Test split: [\d.]+ bits per byte", lines[-2])
    out = tmp_path / "runs/quickstart"
    assert (out / "checkpoints/checkpoint_best.pt").exists() and not (out / "quickstart.png").exists()
    recipe(*arguments)
    assert (out / "quickstart.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize(
    "environment,message",
    [
        ({"FB_FAIRSEQ_VENV": "{}/a:b"}, 'a:b: PATH is split at ":"'),
        ({"FB_FAIRSEQ_VENV": "{}/$(exit)"}, "$(exit): set FB_FAIRSEQ_VENV to a folder without"),
        ({"PYTHON": "/bin/false", "FB_FAIRSEQ_VENV": "{}/venv"}, "error: PYTHON=/bin/false"),
        ({"FB_FAIRSEQ_VENV": "{}/3.13"}, "/3.13 has Python 3.13, on which fairseq does not"),
    ],
)
def test_bad_environments(tmp_path, environment, message):
    python = tmp_path / "3.13/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho 3.13\n")
    python.chmod(0o755)
    environment = {key: value.format(tmp_path) for key, value in environment.items()}
    done = quickstart("--out", tmp_path / "out", environment=environment)
    (line,) = done.stderr.splitlines()
    assert done.returncode != 0 and message in line
    assert [path.name for path in tmp_path.iterdir()] == ["3.13"]


def test_more_minutes():
    """More updates, in a folder of its own."""
    texts = [printed("quickstart", "--minutes", minutes) for minutes in (2, 10, 60)]
    found = [int(value) for text in texts for value in values(text, "--max-update")]
    assert found == sorted(set(found))
    folders = [value for text in texts for value in values(text, "--save-dir")]
    assert folders == [f"runs/quickstart{end}/checkpoints" for end in ("", "-10min", "-60min")]
