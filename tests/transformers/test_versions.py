"""The oldest transformers that setup.py allows, and the releases that the tests pin. fairseq is not needed."""

import os
import pathlib
import re
import sys

import pytest

transformers = pytest.importorskip("transformers")

from tests.conftest import REPOSITORY  # noqa: E402
from tests.ops.own_process import run_tests  # noqa: E402

CONSTRAINTS = REPOSITORY / "examples/constraints"
OLDEST = pathlib.Path(sys.prefix) / "oldest-transformers"  # tests/run.sh makes it
CHOSEN = "generation or padding or steps or saving or memory or twice or positions or sources"
SETUP = (REPOSITORY / "setup.py").read_text()
LOWEST, BELOW = re.search(r'TRANSFORMERS = "transformers>=([0-9.]+),<([0-9.]+)"', SETUP).groups()


def numbers(release):
    return tuple(map(int, re.findall("[0-9]+", release)[:2]))


def pinned(path):
    return dict(line.split("==") for line in path.read_text().splitlines() if not line.startswith("#"))


def test_bounds():
    """What is installed, what is pinned and what is tested as the oldest are within setup.py's bounds."""
    releases = [pinned(path)["transformers"] for path in CONSTRAINTS.glob("python*.txt")]
    for release in (transformers.__version__, *releases):
        assert numbers(LOWEST) <= numbers(release) < numbers(BELOW)
    oldest = pinned(REPOSITORY / "tests/oldest_transformers.txt")["transformers"]
    assert oldest.startswith(LOWEST) and set(oldest[len(LOWEST) :]) <= {".", "0"}


@pytest.mark.not_fast
@pytest.mark.parametrize(
    "files,chosen",
    [
        (["modeling"], f"({CHOSEN}) and not (tied or absolute or spans)"),
        pytest.param(["seq2seq", "inputs"], CHOSEN, marks=pytest.mark.slow),
    ],
)
def test_oldest_transformers(files, chosen):
    """Generation, padding, saving and the link between memory and tokens are the same with the oldest release."""
    if not (OLDEST / "requirements.txt").exists():
        pytest.skip(f"{OLDEST} is missing: bash tests/run.sh makes it")
    tests = [REPOSITORY / f"tests/transformers/test_{name}.py" for name in files]
    report = run_tests(*tests, options=["-k", chosen], PYTHONPATH=os.pathsep.join([str(OLDEST), str(REPOSITORY)]))
    assert f"transformers {pinned(OLDEST / 'requirements.txt')['transformers']}, " in report
    assert int(re.search("([0-9]+) passed", report)[1]) > 40
