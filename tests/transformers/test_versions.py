"""The oldest transformers that setup.py allows, and the releases that the tests pin. fairseq is not needed."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

transformers = pytest.importorskip("transformers")

from tests.conftest import REPOSITORY  # noqa: E402

CONSTRAINTS = REPOSITORY / "examples/constraints"
OLDEST = pathlib.Path(sys.prefix) / "oldest-transformers"  # tests/run.sh makes it
LOWEST, BELOW = re.search(
    r'TRANSFORMERS = "transformers>=([0-9.]+),<([0-9.]+)"', (REPOSITORY / "setup.py").read_text()
).groups()


def numbers(release):
    return tuple(map(int, re.findall("[0-9]+", release)[:2]))


def pinned(path):
    return dict(line.split("==") for line in path.read_text().splitlines() if not line.startswith("#"))


def test_bounds():
    """What is installed, what is pinned and what is tested as the oldest are within setup.py's bounds."""
    for release in (
        transformers.__version__,
        *(pinned(path)["transformers"] for path in CONSTRAINTS.glob("python*.txt")),
    ):
        assert numbers(LOWEST) <= numbers(release) < numbers(BELOW)
    oldest = pinned(REPOSITORY / "tests/oldest_transformers.txt")["transformers"]
    assert oldest.startswith(LOWEST) and set(oldest[len(LOWEST) :]) <= {".", "0"}


@pytest.mark.not_fast
@pytest.mark.parametrize(
    "files,least", [(["modeling"], 40), pytest.param(["seq2seq", "inputs"], 40, marks=pytest.mark.slow)]
)
def test_oldest_transformers(files, least):
    """Generation, padding, saving and the link between memory and tokens are the same with the oldest release."""
    if not (OLDEST / "requirements.txt").exists():
        pytest.skip(f"{OLDEST} is missing: bash tests/run.sh makes it")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    tests = [f"tests/transformers/test_{name}.py" for name in files]
    chosen = "generation or padding or steps or saving or memory or twice or positions or sources or sampling"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(OLDEST), str(REPOSITORY)])}
    done = subprocess.run(
        [*command, *tests, "-k", chosen], cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert (
        f"transformers {pinned(OLDEST / 'requirements.txt')['transformers']}, " in done.stdout
        and int(re.search("([0-9]+) passed", done.stdout)[1]) > least
    )
