"""The quickstart of the README, as a new user would run it."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY


def quickstart(*arguments, environment=None):
    return subprocess.run(
        ["bash", str(REPOSITORY / "examples/quickstart.sh"), *map(str, arguments)],
        env={**os.environ, "FB_FAIRSEQ_VENV": sys.prefix, "OMP_NUM_THREADS": "1", **(environment or {})},
        capture_output=True,
        text=True,
        timeout=300,
        cwd="/",
    )


def test_own_text(tmp_path):
    if not (pathlib.Path(sys.prefix) / ".fb_fairseq").exists():
        pytest.skip("this environment was not created by tests/run.sh")
    text = tmp_path / "my text.txt"
    text.write_bytes(b"A line of text, and another one.\n" * 3000)
    done = quickstart("--text", text, "--updates", 20, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    bits = float(re.search(r"Test split: ([\d.]+) bits per byte", done.stdout).group(1))
    assert 0 < bits < 7.9
    assert (tmp_path / "out/quickstart.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "out/checkpoints/checkpoint_best.pt").exists()


@pytest.mark.parametrize(
    "arguments,environment,message",
    [
        (["--text", "/nowhere"], {}, "error: --text /nowhere"),
        (["--updates", "many"], {}, "error: --updates many"),
        (["--epochs", "3"], {}, "error: --epochs"),
        ([], {"PYTHON": "/bin/false", "FB_FAIRSEQ_VENV": "{}/venv"}, "error: PYTHON=/bin/false"),
    ],
)
def test_bad_input(tmp_path, arguments, environment, message):
    environment = {key: value.format(tmp_path) for key, value in environment.items()}
    done = quickstart(*arguments, "--out", tmp_path / "out", environment=environment)
    assert done.returncode != 0 and message in done.stderr.splitlines()[-1]
    assert not list(tmp_path.iterdir())
