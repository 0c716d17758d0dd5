"""The scripts in examples/reinforcement_learning."""

import json
import re

import pytest

from tests.cli.recipes import environment, recipe  # noqa: F401

TINY = ["--", "--frames", 80, "--environments", 4, "--block", 10, "--width", 8]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["corridor", "maze", "maze_easy", "water_maze"])
@pytest.mark.parametrize("scale", ["--small", "--full"])
def test_scripts(tmp_path, name, scale):
    out = tmp_path / "out"
    spans = ["--spans", "2 3"] if name == "corridor" else []
    tiny = [*TINY, *(["--length", 3] if name == "corridor" else ["--limit", 5])]
    done = recipe(
        f"reinforcement_learning/{name}.sh", scale, "--seeds", "1 2", "--jobs", 2, "--out", out, *spans, *tiny
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    results = json.loads((out / "results.json").read_text())
    agents = ["feedback", "transformer"] + ([] if name == "corridor" else ["lstm"])
    assert list(results) == [*agents, "settings", "all"]
    assert len(results["all"]) == (8 if name == "corridor" else 6)
    assert "| hours | seeds |" in done.stdout and "\nTrained on " in done.stdout
    for agent in agents:
        assert 0 <= results[agent]["success"] <= 100 and results[agent]["seeds"] == [1, 2]
        assert results[agent]["span"] == (2 if name == "corridor" else None)
    assert (out / "curves.png").exists() and (out / "memory.png").exists() == (name == "corridor")
    assert len(list(out.glob("*.gif"))) == len(results["all"])
    logs = {path: path.read_text() for path in out.glob("*/log.jsonl")}
    again = recipe(f"reinforcement_learning/{name}.sh", scale, "--seeds", "1 2 1", "--out", out, *spans, *tiny)
    assert again.returncode == 0 and json.loads((out / "results.json").read_text()) == results
    assert logs == {path: path.read_text() for path in out.glob("*/log.jsonl")}, (
        "no run is trained again: the logged speeds are the same"
    )


@pytest.mark.parametrize(
    "arguments,message",
    [
        (["--seeds", "one"], "error: --seeds one: give a number, 1 or more"),
        (["--spans", "0"], "error: --spans 0: give a number, 1 or more"),
        (["--seed", "1", "--seeds", "2"], "error: --seed, --seeds: give one of them"),
        (["--epochs", "3"], "error: --epochs: unknown option; give --small"),
        (["data"], "error: data: unexpected argument, the environments need no data; give --small"),
    ],
)
def test_bad_input(tmp_path, arguments, message):
    done = recipe("reinforcement_learning/maze.sh", *arguments, "--out", tmp_path / "out")
    assert done.returncode != 0 and re.search(message, done.stderr.splitlines()[-1])
    assert not (tmp_path / "out").exists()
