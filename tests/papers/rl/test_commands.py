"""The commands train, evaluate and plot."""

import json

import pytest

from fb_fairseq.papers.rl.command import build_parser, main
from fb_fairseq.papers.rl.options import AGENTS
from fb_fairseq.papers.rl.presets import FULL, preset_options
from fb_fairseq.papers.rl.runs import load_checkpoint
from fb_fairseq.papers.rl.trainer import Trainer
from tests.surroundings import terminated


@pytest.mark.not_fast
@pytest.mark.parametrize("agent", AGENTS)
def test_learns(agent, tmp_path, capsys):
    """A corridor of one step: success rises from chance (half) to nearly always."""
    out = tmp_path / "run"
    arguments = ["--agent", agent, "--small", "--length", "1", "--environments", "32", "--block", "16", "--lr", "0.01"]
    main(["train", *arguments, "--out", str(out), "--frames", "40000", "--log-interval", "5", "--cpu"])
    entries = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert entries[0]["success"] < 0.7 and entries[-1]["success"] > 0.9
    assert entries[-1]["frames"] >= 40000 and entries[-1]["fps"] > 0
    capsys.readouterr()
    arguments = ["--path", str(out / "checkpoint.pt"), "--episodes", "50", "--record", str(tmp_path / "episode.gif")]
    main(["evaluate", *arguments, "--out", str(tmp_path / "result.json"), "--cpu"])
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {"written_by": "rl-evaluate", **result} == json.loads((tmp_path / "result.json").read_text())
    assert result["success"] > 90 and result["episodes"] == 50
    assert (tmp_path / "episode.gif").read_bytes().startswith(b"GIF")


def test_commands(tmp_path, capsys, refused):
    """Interrupted and resumed training; curves; recordings."""
    pytest.importorskip("matplotlib")
    arguments = "--environment water_maze --small --limit 9 --environments 4 --block 10 --log-interval 1 --cpu".split()
    out = tmp_path / "run"
    main(["train", *arguments, "--out", str(out), "--frames", "80"])
    main(["train", *arguments, "--out", str(out), "--frames", "200"])
    frames = [json.loads(line)["frames"] for line in (out / "log.jsonl").read_text().splitlines()]
    assert frames == [40, 80, 120, 160, 200]
    with open(out / "log.jsonl", "a") as file:
        file.write('{"frames": 240, "ent')  # interrupted while writing
    main(["train", *arguments, "--out", str(out), "--frames", "240"])
    assert [json.loads(line)["frames"] for line in (out / "log.jsonl").read_text().splitlines()] == [*frames, 240]
    before = {path.name: path.stat().st_mtime_ns for path in out.iterdir() if path.name != ".lock"}
    capsys.readouterr()
    main(["train", *arguments, "--out", str(out), "--frames", "240"])
    assert "this run is finished: 240 frames of --frames 240" in capsys.readouterr().err
    assert before == {path.name: path.stat().st_mtime_ns for path in out.iterdir() if path.name != ".lock"}
    main(["plot", f"A={out}", f"A={out}", f"B={out}", "--out", str(tmp_path / "curves.png")])
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    line = refused(main, ["plot", str(out), "--out", str(tmp_path / "other.png")])
    assert line.endswith(f"{out}: gives no folder; give NAME=FOLDER")


def test_interrupted(tmp_path, capsys):
    """Ctrl-C or ``kill``: the block ends and is saved; the same command ends as one that was not interrupted."""
    arguments = "train --small --environments 4 --block 10 --log-interval 2 --frames 200 --cpu --out".split()
    main([*arguments, str(tmp_path / "whole")])
    capsys.readouterr()
    for update in (1, 3, 5):
        with terminated(Trainer, "train_block", "frames", 40 * (update - 1)):
            main([*arguments, str(tmp_path / "parts")])
        line = f"fb-fairseq rl: interrupted at update {update} of 5; run the same command again to resume"
        assert capsys.readouterr().err.splitlines()[-1] == line
        assert load_checkpoint(str(tmp_path / "parts/checkpoint.pt"))["frames"] == 40 * update
    main([*arguments, str(tmp_path / "parts")])
    whole, parts = (load_checkpoint(str(tmp_path / name / "checkpoint.pt")) for name in ("whole", "parts"))
    for name, tensor in whole["agent"].items():
        assert tensor.equal(parts["agent"][name]), name
    logs = [(tmp_path / name / "log.jsonl").read_text().splitlines() for name in ("whole", "parts")]
    assert [{**json.loads(line), "fps": 0} for line in logs[0]] == [{**json.loads(line), "fps": 0} for line in logs[1]]


@pytest.mark.parametrize("environment", FULL)
def test_previous_action(environment):
    """Hidden in the papers' settings and in corridors, visible in small mazes; the command line decides."""
    parser = build_parser()

    def shown(*arguments):
        args = parser.parse_args(["train", "--out", "x", "--environment", environment, *arguments])
        return preset_options(environment, "lstm", args.small, vars(args))[1].previous_action

    assert not shown() and shown("--small") == (environment != "corridor")
    for scale in [], ["--small"]:
        assert shown("--previous-action", *scale) and not shown("--no-previous-action", *scale)
