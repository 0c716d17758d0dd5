"""The commands train, evaluate and plot: what they write, and how a run goes on."""

import argparse
import json
import sys

import numpy as np
import pytest
import torch

from fb_fairseq.papers.rl import evaluate
from fb_fairseq.papers.rl.command import build_parser, main
from fb_fairseq.papers.rl.log import LOG_FILE, read_entries
from fb_fairseq.papers.rl.options import AGENTS
from fb_fairseq.papers.rl.presets import FULL, preset_options
from fb_fairseq.papers.rl.runs import load_checkpoint
from fb_fairseq.papers.rl.trainer import Trainer
from tests.surroundings import terminated

SMALL = "--environment water_maze --small --limit 9 --environments 4 --block 10 --log-interval 1 --cpu".split()


def train(out, frames):
    """Train in a folder up to so many frames; a block has 40."""
    main(["train", *SMALL, "--out", str(out), "--frames", str(frames)])


def logged(out):
    """The entries of a run's log."""
    return read_entries(str(out / LOG_FILE))


@pytest.mark.not_fast
@pytest.mark.parametrize("agent", AGENTS)
def test_learns(agent, tmp_path, capsys):
    """A corridor of one step: success rises from chance (half) to nearly always, in evaluation too, which also records
    an episode."""
    out = tmp_path / "run"
    arguments = ["--agent", agent, "--small", "--length", "1", "--environments", "32", "--block", "16", "--lr", "0.01"]
    main(["train", *arguments, "--out", str(out), "--frames", "40000", "--log-interval", "5", "--cpu"])
    first, *_, last = logged(out)
    assert first["reward"] < 0.7 and last["reward"] > 0.9
    assert last["frames"] >= 40000 and last["fps"] > 0
    capsys.readouterr()
    arguments = ["--path", str(out / "checkpoint.pt"), "--episodes", "50", "--record", str(tmp_path / "episode.gif")]
    main(["evaluate", *arguments, "--out", str(tmp_path / "result.json"), "--cpu"])
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {"written_by": "rl-evaluate", **result} == json.loads((tmp_path / "result.json").read_text())
    assert result["success"] > 90 and result["episodes"] == 50
    image = pytest.importorskip("PIL.Image").open(tmp_path / "episode.gif")
    assert image.format == "GIF" and image.n_frames > 1
    assert (image.info["duration"], image.info["loop"]) == (120, 0), "in hundredths: 8 frames a second; again and again"


def test_the_first_episodes_count(monkeypatch):
    """One of each environment, whose later ones bring nothing."""
    starts = iter(([True, False], [True, False], [False, True]))
    rewards = iter(([1.0, 0.0], [5.0, 0.0], [5.0, 0.0]))

    class Play:
        def step(self, actor):
            self.starts = np.array(next(starts))
            return argparse.Namespace(reward=torch.tensor(next(rewards)))

    monkeypatch.setattr(evaluate, "new_play", lambda agent, options, episodes: (Play(), None))
    assert evaluate.evaluate(None, None, 2) == {"reward": 0.5, "success": 50.0, "episodes": 2}


def test_a_missing_package_costs_no_episodes(tmp_path, refused, monkeypatch):
    """The one with which they are recorded."""
    main(["train", "--small", "--frames", "1", "--cpu", "--out", str(tmp_path)])
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setattr(evaluate, "evaluate", None)
    command = ["evaluate", "--path", str(tmp_path / "checkpoint.pt"), "--record", str(tmp_path / "a.gif"), "--cpu"]
    assert "PIL is not installed; pip install" in refused(main, command)


def test_a_run_goes_on(tmp_path):
    """From its checkpoint. Later entries of its log are dropped, of which the last may have been cut off."""
    train(tmp_path, 80)
    with open(tmp_path / LOG_FILE, "a") as file:
        file.write('{"frames": 120}\n{"frames": 160, "rew')
    train(tmp_path, 160)
    assert [entry["frames"] for entry in logged(tmp_path)] == [40, 80, 120, 160]


def test_a_finished_run_is_left_as_it_is(tmp_path, capsys):
    def times():
        return {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}

    train(tmp_path, 40)
    before = times()
    capsys.readouterr()
    train(tmp_path, 40)
    assert "this run is finished: 40 frames of --frames 40" in capsys.readouterr().err
    assert times() == before


def test_plot(tmp_path, refused):
    pytest.importorskip("matplotlib")
    run = tmp_path / "run"
    train(run, 80)
    main(["plot", f"A={run}", f"A={run}", f"B={run}", "--out", str(tmp_path / "curves.png")])
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    line = refused(main, ["plot", str(run), "--out", str(tmp_path / "other.png")])
    assert line.endswith(f"{run}: gives no folder; give NAME=FOLDER")


def test_interrupted(tmp_path, capsys):
    """Ctrl-C or ``kill``: the block ends and is saved; the same command ends as one that was not interrupted."""
    whole = tmp_path / "whole"
    parts = tmp_path / "parts"
    train(whole, 200)
    capsys.readouterr()
    for update in (1, 3, 5):
        with terminated(Trainer, "train_block", "frames", 40 * (update - 1)):
            train(parts, 200)
        line = f"fb-fairseq rl: interrupted at update {update} of 5; run the same command again to resume"
        assert capsys.readouterr().err.splitlines()[-1] == line
        assert load_checkpoint(str(parts / "checkpoint.pt"))["frames"] == 40 * update
    train(parts, 200)
    agents = [load_checkpoint(str(out / "checkpoint.pt"))["agent"] for out in (whole, parts)]
    torch.testing.assert_close(*agents, atol=0, rtol=0)
    assert [{**entry, "fps": 0} for entry in logged(whole)] == [{**entry, "fps": 0} for entry in logged(parts)]


@pytest.mark.parametrize("environment", FULL)
def test_previous_action(environment):
    """Hidden in the papers' settings and in corridors, visible in small mazes; the command line decides."""
    parser = build_parser()

    def shown(*arguments):
        args = parser.parse_args(["train", "--out", "x", "--environment", environment, *arguments])
        _, agent = preset_options(environment, "lstm", args.small, vars(args))
        return agent.previous_action

    assert not shown() and shown("--small") == (environment != "corridor")
    for scale in [], ["--small"]:
        assert shown("--previous-action", *scale) and not shown("--no-previous-action", *scale)
