"""Acting and learning agree, the losses are correct, and resumed training equals uninterrupted training."""

import json
import math
import sys

import pytest
import torch

from fb_fairseq.errors import UserError
from fb_fairseq.papers.rl import evaluate
from fb_fairseq.papers.rl.agent import Actor, Agent, AgentMemory, ages
from fb_fairseq.papers.rl.command import build_parser, main
from fb_fairseq.papers.rl.log import LOG_FILE, read_curve
from fb_fairseq.papers.rl.options import AGENTS, AgentOptions, TrainingOptions
from fb_fairseq.papers.rl.presets import FULL, preset_options
from fb_fairseq.papers.rl.runs import load_checkpoint
from fb_fairseq.papers.rl.trainer import Trainer, a2c_loss, discounted_returns
from tests.surroundings import terminated

CPU = torch.device("cpu")
TINY = dict(layers=2, width=12, heads=2, span=7)
STATE = "settings options agent optimizer frames memory age previous world observation starts rewards recent rng device"


@pytest.mark.parametrize("previous_action", [True, False])
@pytest.mark.parametrize("agent", AGENTS)
def test_acting_and_learning_agree(agent, previous_action):
    """Step by step and in blocks: the same logits and values, across ends of episodes and blocks."""
    torch.manual_seed(1)
    T, B = 17, 4
    model = Agent((5, 3), 3, AgentOptions(agent, **TINY, previous_action=previous_action))
    torch.nn.init.normal_(model.policy.weight)
    memory = AgentMemory.initial(B)
    for block in range(3):
        observations = torch.stack([torch.randint(5, (T, B)), torch.randint(3, (T, B))], -1)
        starts = torch.rand(T, B) < 0.1
        actions = torch.randint(3, (T, B))
        starts[0] |= block == 0
        actor, steps = Actor(model, memory), []
        for t in range(T):
            steps.append(actor.step(observations[t], starts[t]))
            actor.previous_B = actions[t]
        logits, values, memory = model(observations, actions, starts, memory)
        torch.testing.assert_close(torch.stack([step[0] for step in steps]), logits.detach(), atol=1e-5, rtol=0)
        torch.testing.assert_close(torch.stack([step[1] for step in steps]), values.detach(), atol=1e-5, rtol=0)
        assert torch.equal(actor.age_B, memory.age_B)


def test_ages():
    starts = torch.tensor([[True, False], [False, False], [True, False]])
    assert ages(starts, torch.tensor([9, 9])).tolist() == [[0, 9], [1, 10], [0, 11], [1, 12]]


@pytest.mark.parametrize("agent", AGENTS)
def test_what_an_agent_remembers(agent):
    """The first observation of this episode, not those of the previous one; a Transformer at most L S steps back."""
    torch.manual_seed(2)
    model = Agent((9,), 3, AgentOptions(agent, layers=2, width=12, heads=2, span=3))
    T = 12
    starts = torch.zeros(T, 1, dtype=torch.bool)
    starts[[0, 4]] = True
    observations = torch.randint(9, (T, 1, 1))
    actions = torch.zeros(T, 1, dtype=torch.long)

    def values(changed):
        other = observations.clone()
        other[changed] = (other[changed] + 1) % 9
        with torch.no_grad():
            return model(other, actions, starts, AgentMemory.initial(1))[1][:, 0]

    same = values([])
    differs = values(2).ne(same)
    assert differs[2:4].all() and not differs[4:].any()
    differs = values(4).ne(same)
    assert differs[4:11].all() and differs[11] == (agent != "transformer")


def test_lstms_have_no_heads():
    """So any width will do."""
    assert Agent((9,), 3, AgentOptions("lstm", width=13, heads=2))


def test_returns_by_hand():
    rewards = torch.tensor([[1.0], [0.0], [2.0]])
    ended = torch.tensor([[False], [True], [False]])
    returns = discounted_returns(rewards, ended, torch.tensor([10.0]), 0.5)
    assert returns.tolist() == [[1.0], [0.0], [7.0]]


def test_loss_by_hand():
    """One step, two equally probable actions, the first was taken; advantage 3."""
    options = TrainingOptions(entropy_cost=0.1, value_cost=0.5)
    logits = torch.zeros(1, 1, 2, requires_grad=True)
    values = torch.tensor([[1.0]], requires_grad=True)
    loss = a2c_loss(options, logits, values, torch.tensor([[0]]), torch.tensor([[4.0]]))
    expected = 3 * math.log(2) + 0.5 * 9 - 0.1 * math.log(2)
    assert loss.item() == pytest.approx(expected)
    loss.backward()
    assert values.grad.item() == pytest.approx(0.5 * 2 * -3), "no gradient through the advantage"
    assert logits.grad.flatten().tolist() == pytest.approx([-1.5, 1.5])


@pytest.mark.parametrize("agent", AGENTS)
def test_trainer_resumes(agent):
    """Ten blocks, or five and, from the state, five more: the same parameters."""

    def trainer():
        options = TrainingOptions("maze", {"size": 5, "limit": 13}, environments=3, block=8, lr=0.01, seed=4)
        return Trainer(options, AgentOptions(agent, **TINY), CPU)

    def blocks(trainer, number):
        for _ in range(number):
            trainer.train_block()

    whole = trainer()
    first = trainer()
    second = trainer()
    blocks(first, 5)
    second.load_state_dict(first.state_dict())
    blocks(whole, 10)
    blocks(second, 5)
    assert list(first.state_dict()) == STATE.split(), "checkpoints of earlier versions can be read"
    for (name, a), b in zip(whole.agent.state_dict().items(), second.agent.state_dict().values()):
        assert torch.equal(a, b), name
    assert whole.frames == second.frames == 240 and list(whole.recent_rewards) == list(second.recent_rewards)


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


def test_a_missing_package_costs_no_episodes(tmp_path, refused, monkeypatch):
    """The one with which they are recorded."""
    main(["train", "--small", "--frames", "1", "--cpu", "--out", str(tmp_path)])
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setattr(evaluate, "evaluate", None)
    command = ["evaluate", "--path", str(tmp_path / "checkpoint.pt"), "--record", str(tmp_path / "a.gif"), "--cpu"]
    assert "PIL is not installed; pip install" in refused(main, command)


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


TRAIN, EVALUATE = "train --out {}/run ", f"evaluate --path {__file__} "


@pytest.mark.parametrize(
    "words,message",
    [
        (TRAIN + "--environment desert", "--environment desert: unknown; choose from corridor, maze"),
        (TRAIN + "--heads 3", "--heads 3: does not divide --width 256"),
        (TRAIN + "--environment maze --size 101", "--size 101: give 100 or less"),
        (TRAIN + "--agent gru", "--agent gru: unknown; choose from feedback, transformer, lstm"),
        (TRAIN + "--layers 0", "--layers 0: must be 1 or more"),
        (TRAIN + "--lr nan", "--lr nan: must be greater than 0"),
        (TRAIN + "--entropy-cost nan", "--entropy-cost nan: must be 0 or more"),
        (TRAIN + "--value-cost -1", "--value-cost -1.0: must be 0 or more"),
        (TRAIN + "--discount 2", "--discount 2.0: must be between 0 and 1"),
        (TRAIN + "--log-interval 0", "--log-interval 0: give 1 or more"),
        ("evaluate --path /nowhere", "/nowhere: No such file or directory"),
        (EVALUATE, "not a checkpoint, or one with objects that are not data"),
        (EVALUATE + "--out /", "--out /: is no file, but a folder, a device or a pipe; give the name of a file"),
    ],
)
def test_bad_input(tmp_path, refused, words, message):
    assert message in refused(main, words.format(tmp_path).split())
    assert not (tmp_path / "run").exists(), "nothing half-written"


def test_checkpoint_of_other_options(tmp_path, refused):
    arguments = ["--small", "--environments", "2", "--block", "3", "--cpu", "--out", str(tmp_path)]
    main(["train", *arguments, "--frames", "6"])
    before = (tmp_path / "checkpoint.pt").read_bytes()
    for change, message in (
        (["--agent", "lstm"], "made with --agent feedback, not lstm; give another --out"),
        (["--span", "3"], "made with --span 8, not 3"),
        (["--environment", "maze"], "made with --environment corridor, not maze"),
        (["--previous-action"], "made with --previous-action False, not True; give another --out"),
    ):
        assert message in refused(main, ["train", *arguments, "--frames", "600", *change])
    assert (tmp_path / "checkpoint.pt").read_bytes() == before


@pytest.mark.parametrize("line", ["{", "\0", "5", '{"reward": 1}'])
def test_damaged_log(tmp_path, line):
    path = tmp_path / LOG_FILE
    path.write_text('{"frames": 1, "reward": 0.5}\n' + line + "\n")
    with pytest.raises(UserError, match=f"{LOG_FILE}: is damaged"):
        read_curve(str(tmp_path))
    path.write_text('{"frames": 1, "reward": 0.5}\n' + line)
    assert read_curve(str(tmp_path)) == [(1, 0.5)], "an incomplete last line"
