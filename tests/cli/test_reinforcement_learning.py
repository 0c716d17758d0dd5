"""Recipes of reinforcement learning, from the agents to figures."""

import json

import pytest

from tests.cli.odd_names import ODD_NAME
from tests.cli.recipes import recipe  # noqa: F401

TINY = ["--", "--frames", 80, "--environments", 4, "--block", 10, "--width", 8]


def test_one_agent(tmp_path, recipe):  # noqa: F811
    """In a folder with an odd name; an agent that is trained is not trained again."""
    out = tmp_path / ODD_NAME
    for _ in range(2):
        recipe("maze", "--agents", "lstm", "--out", out, *TINY, "--limit", 5)
        assert list(json.loads((out / "results.json").read_text())) == ["lstm-seed1"]
        logs = [json.loads(line) for line in (out / "lstm-seed1/log.jsonl").read_text().splitlines()]
        assert [entry["frames"] for entry in logs] == [80], "not trained twice"
        assert (out / "lstm-seed1.log").read_text().count("80 of 80 frames") == 1, "kept"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["corridor", "maze", "maze_easy", "water_maze"])
@pytest.mark.parametrize("scale", ["--small", "--full"])
def test_environments(tmp_path, recipe, name, scale):  # noqa: F811
    out = tmp_path / "out"
    spans = ["--spans", "2 3"] if name == "corridor" else []
    tiny = [*TINY, *(["--length", 3] if name == "corridor" else ["--limit", 5])]
    done = recipe(name, scale, "--seeds", "1 2", "--jobs", 2, "--out", out, *spans, *tiny)
    results = json.loads((out / "results.json").read_text())
    agents = ["feedback", "transformer"] + ([] if name == "corridor" else ["lstm"])
    assert [*dict.fromkeys(run["model"] for run in results.values())] == agents
    assert len(results) == (8 if name == "corridor" else 6)
    assert "| hours | seeds |" in done.out and "\nTrained on " in done.out
    for agent in agents:
        runs = [run for run in results.values() if run["model"] == agent]
        assert all(0 <= run["success"] <= 100 for run in runs) and {run["seed"] for run in runs} == {1, 2}
        assert {run["span"] for run in runs} == ({2, 3} if name == "corridor" else {None})
    assert (out / "curves.png").exists() and (out / "memory.png").exists() == (name == "corridor")
    assert len(list(out.glob("*.gif"))) == len(results)
    logs = {path: path.read_text() for path in out.glob("*/log.jsonl")}
    recipe(name, scale, "--seeds", "1 2 1", "--out", out, *spans, *tiny)
    assert json.loads((out / "results.json").read_text()) == results
    assert logs == {path: path.read_text() for path in out.glob("*/log.jsonl")}, "no run is trained again"
