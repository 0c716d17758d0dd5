"""Recipes without data of their own in folders with odd names; the others' own tests run in such folders."""

import json

from tests.cli.recipes import environment, recipe  # noqa: F401
from tests.cli.test_recipes import ODD_NAME


def test_reinforcement_learning(tmp_path):
    out = tmp_path / ODD_NAME
    tiny = ["--frames", 80, "--environments", 4, "--block", 10, "--width", 8, "--limit", 5]
    done = recipe("reinforcement_learning/maze.sh", "--agents", "lstm", "--out", out, "--", *tiny)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert len(json.loads((out / "results.json").read_text())["all"]) == 1
