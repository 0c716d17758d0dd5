"""State tracking: training with its curriculum, resuming, tests, and what is written."""

import itertools
import json
import os
from dataclasses import replace

import pytest
import torch

from fb_fairseq.errors import UserError
from fb_fairseq.papers.state_tracking.architectures import ARCHITECTURES
from fb_fairseq.papers.state_tracking.command import main, result_of
from fb_fairseq.papers.state_tracking.evaluation import evaluate, longest_good
from fb_fairseq.papers.state_tracking.export import notes
from fb_fairseq.papers.state_tracking.options import Options
from fb_fairseq.papers.state_tracking.problems import NO_TARGET, Sequences
from fb_fairseq.papers.state_tracking.trainer import Trainer, last_accuracy
from fb_fairseq.tensor_files import save_file
from tests.papers.state_tracking.test_models import needs
from tests.surroundings import terminated

CPU = torch.device("cpu")
TRAINER = "fb_fairseq.papers.state_tracking.trainer"
COMMAND = "fb_fairseq.papers.state_tracking.command"
TINY = Options(group="S3", longest=4, updates=4, tokens=16, lr=0.01)


def options_of(options, *left_out):
    """The command line of these options."""
    given = {name: value for name, value in vars(options).items() if name not in left_out}
    return [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def test_as_many_symbols_as_tests_have_keys_and_values():
    Options(task="recall", longest=2, symbols=16)
    with pytest.raises(UserError, match="--symbols 15: tests have 8 keys, .*give 16 or more"):
        Options(task="recall", longest=2, symbols=15)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_two_updates(name):
    """All parameters that are used learn, and equal seeds give equal models."""
    needs(name)
    losses = []
    for _ in range(2):
        trainer = Trainer(replace(TINY, model=name), CPU)
        before = {key: value.clone() for key, value in trainer.model.named_parameters()}
        trainer.size = 4
        losses.append([trainer.train_update()[0] for _ in range(2)])
    assert losses[0] == losses[1]
    still = {key for key, value in trainer.model.named_parameters() if value.equal(before[key])}
    assert not {key for key in still if "embed" not in key and "pos" not in key}, still


def test_learning_rates(monkeypatch):
    """A warm-up of 100 updates, then the rate that was chosen, and in the last fifth a fall to 0."""
    trainer = Trainer(replace(TINY, updates=1000, lr=0.5), CPU)
    monkeypatch.setattr(trainer.optimizer, "step", lambda: None)
    found = {}
    for update in (0, 49, 99, 100, 799, 800, 900, 999):
        trainer.update = update
        trainer.train_update()
        found[update] = trainer.optimizer.param_groups[0]["lr"]
    expected = {0: 0.005, 49: 0.25, 99: 0.5, 100: 0.5, 799: 0.5, 800: 0.5, 900: 0.25, 999: 0.0025}
    assert found == pytest.approx(expected)


def test_what_is_said_and_saved_meanwhile(tmp_path, monkeypatch):
    """After more than so many seconds, and at the end."""
    clock = itertools.count(100, 5)
    monkeypatch.setattr(f"{TRAINER}.time.monotonic", lambda: next(clock))
    monkeypatch.setattr(f"{TRAINER}.SAY_SECONDS", 10)
    monkeypatch.setattr(f"{TRAINER}.SAVE_SECONDS", 20)
    saved, said = [], []
    monkeypatch.setattr(f"{TRAINER}.save_file", lambda state, path: saved.append(state["update"]))
    trainer = Trainer(replace(TINY, updates=11), CPU)
    trainer.train(str(tmp_path), said.append)
    assert [int(line.split()[1]) for line in said] == [3, 6, 9, 11] and saved == [5, 10, 11]
    assert trainer.seconds == 55


def test_all_models_see_the_same_sequences():
    one, other = (Sequences("word_problem", dict(group="A5"), 1) for _ in range(2))
    for split, number in (("train", 0), ("train", 1), ("test", 0)):
        for a, b in zip(one.draw(split, number, 7, 3), other.draw(split, number, 7, 3)):
            assert a.equal(b) and a.shape == (3, 7)
    assert not one.draw("train", 0, 7, 3)[0].equal(one.draw("train", 1, 7, 3)[0])
    assert not one.draw("train", 0, 7, 3)[0].equal(one.draw("valid", 0, 7, 3)[0])


@pytest.mark.parametrize("task,size", [("word_problem", 5), ("recall", 3)])
def test_tensors(task, size):
    sequences = Sequences(task, dict(group="S3", symbols=32), 1)
    inputs, labels = sequences.draw("train", 0, size, 50)
    assert 0 <= inputs.min() and inputs.max() < sequences.symbols
    assert labels.max() < sequences.classes and set(labels[labels < 0].tolist()) <= {NO_TARGET}
    assert inputs.shape[1] == sequences.growth.steps(size)


def test_last_accuracy():
    labels = torch.tensor([[0, 1, NO_TARGET], [1, NO_TARGET, NO_TARGET], [0, 0, 1]])
    logits = torch.nn.functional.one_hot(torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0]]), 2).float()
    assert last_accuracy(logits, labels) == pytest.approx(2 / 3)


def test_curriculum(monkeypatch):
    """Sequences grow by an eighth, at least by 1, whenever their last label was right often enough."""
    monkeypatch.setattr(f"{TRAINER}.WINDOW", 2)
    monkeypatch.setattr(f"{TRAINER}.last_accuracy", lambda logits, labels: 1.0)
    trainer = Trainer(replace(TINY, longest=20, updates=100), CPU)
    sizes = []
    for _ in range(40):
        trainer.train_update()
        sizes.append(trainer.size)
    assert sorted(set(sizes)) == [*range(2, 17), 18, 20] and sizes[:4] == [2, 3, 3, 4]
    monkeypatch.setattr(f"{TRAINER}.last_accuracy", lambda logits, labels: 0.5)
    trainer = Trainer(replace(TINY, longest=20, updates=100), CPU)
    for _ in range(10):
        trainer.train_update()
    assert trainer.size == 2


def test_mixed_sizes(monkeypatch):
    """Each update has a size of its own: the same for all models, and all sizes up to the longest."""
    drawn = []
    draw = Sequences.draw

    def recording(sequences, split, number, size, *given):
        drawn.append(size)
        return draw(sequences, split, number, size, *given)

    monkeypatch.setattr(Sequences, "draw", recording)
    for model in ("feedback", "lstm"):
        trainer = Trainer(replace(TINY, model=model, curriculum="mixed", longest=5, updates=100), CPU)
        for _ in range(30):
            trainer.train_update()
        assert trainer.size == 5
    assert drawn[:30] == drawn[30:] and set(drawn) == {2, 3, 4, 5}


def test_mistakes():
    """Of four sequences of 32 labels, two are right; the others go wrong at the third and the last one."""
    sequences = Sequences("word_problem", dict(group="S3"), 1)
    labels = sequences.draw("test", 0, 32, 4)[1]
    labels[0, 2] = (labels[0, 2] + 1) % 6
    labels[3, 31] = (labels[3, 31] + 1) % 6
    model = Trainer(replace(TINY, group="S3"), CPU).model
    model.forward = lambda inputs: torch.nn.functional.one_hot(labels, 6).float()
    found = evaluate(model, sequences, replace(TINY, group="S3", longest=2, test_sequences=4))
    assert found["flawless"] == 0.5 and found["slips"] == 2 / (3 + 32 + 32 + 32)
    assert found["accuracy"][2] == found["accuracy"][31] == 0.75 and sum(found["accuracy"]) == 31.5


def test_longest_good():
    assert longest_good([1, 2, 3, 4], [1.0, 0.95, 0.5, 0.99]) == 2
    assert longest_good([1, 2], [0.5, 1.0]) == 0
    assert longest_good([1, 2], [0.9, 0.9]) == 2, "at least 90 %"


def test_the_figures_of_a_result(monkeypatch):
    """Rounded to five places; what is long and right is so of the tests, not of the validation."""
    found = {
        "valid": {"accuracy": [1.0, 0.123456]},
        "test": {"accuracy": [0.999999, 0.9, 0.123456], "sizes": [3, 5, 7], "flawless": 0.5},
    }
    monkeypatch.setattr(f"{COMMAND}.evaluate", lambda model, sequences, options, split="test": found[split])
    result = result_of(Trainer(TINY, CPU))
    assert result["accuracy"] == [1.0, 0.9, 0.12346] and result["valid_accuracy"] == 0.56173
    assert result["longest_good"] == 5 and result["flawless"] == 0.5 and result["seconds"] == 0


def test_it_learns(tmp_path):
    """Parity, by a Feedback Transformer with a span of one step: far beyond the lengths in training."""
    options = replace(TINY, group="parity", span=1, layers=1, longest=8, updates=300, tokens=256)
    trainer = Trainer(options, CPU)
    said = []
    trainer.train(str(tmp_path), said.append)
    assert said[-1].startswith("update 300 of 300: length 8, loss ")
    accuracy = evaluate(trainer.model, trainer.sequences, replace(options, test_sequences=50))["accuracy"]
    assert trainer.size == 8 and len(accuracy) == 128 and min(accuracy) > 0.99


def test_interrupted(tmp_path, capsys):
    """Ctrl-C or ``kill``: the update ends and is saved; the same command goes on, with the tests too, and ends as one
    that was not interrupted."""
    arguments = ["train", *options_of(TINY), "--device", "cpu", "--out"]
    main([*arguments, str(tmp_path / "whole")])
    capsys.readouterr()
    for update in (0, 2, 3):
        with terminated(Trainer, "train_update", "update", update):
            main([*arguments, str(tmp_path / "parts")])
        now = f"interrupted at update {update + 1} of 4; run the same command again to resume\n"
        assert capsys.readouterr().err == f"fb-fairseq state-tracking: {now}"
        assert not (tmp_path / "parts/result.json").exists()
    main([*arguments, str(tmp_path / "parts")])
    whole, parts = (json.loads((tmp_path / name / "result.json").read_text()) for name in ("whole", "parts"))
    assert {**parts, "seconds": 0} == {**whole, "seconds": 0}
    with pytest.raises(SystemExit):
        main(["train", *options_of(replace(TINY, width=16)), "--device", "cpu", "--out", str(tmp_path / "parts")])
    assert "checkpoint.pt: was made with --width 64, not 16; give another --out" in capsys.readouterr().err


def test_results_and_cards_say_what_was_done(tmp_path, capsys):
    """Not what was asked for, and nothing of another moment of the training."""
    pytest.importorskip("transformers")
    run = tmp_path / "run"
    model = tmp_path / "model"
    train = ["train", "--out", str(run), *options_of(TINY), "--device", "cpu"]
    export = ["export", str(run), "--to", str(model)]
    main([*train, "--minutes", "1e-9"])
    result = json.loads((run / "result.json").read_text())
    assert result["updates"] == 1 and result["ended"] == "by --minutes 1e-09, before update 4"
    assert "ended by --minutes 1e-09, before update 4: the figures are those of update 1" in capsys.readouterr().out
    main(export)
    card = (model / "README.md").read_text()
    assert "| updates | 1 |" in card and "| ended | by --minutes 1e-09, before update 4 |" in card
    assert "| numbers | rounded to bfloat16 after the figures above were measured |" in card and "license" not in card
    trainer = Trainer(TINY, CPU)
    trainer.resume(str(run / "checkpoint.pt"))
    trainer.train_update()
    save_file(trainer.state_dict(), str(run / "checkpoint.pt"))  # as after a kill
    with pytest.raises(SystemExit):
        main(export)
    assert f"{run}: checkpoint.pt is of update 2, result.json of 1; run the same training" in capsys.readouterr().err
    for content in ("{", "{}", "[]", '{"updates": 2, "flawless": 1.0, "slips": 0.0}', '{"updates": "x"}'):
        (run / "result.json").write_text(content)
        with pytest.raises(SystemExit):
            main(export)
        assert f"{run}/result.json: is damaged; run the same training again" in capsys.readouterr().err
    (run / "result.json").unlink()
    with pytest.raises(SystemExit):
        main(export)
    assert f"{run}: has no result.json; run the same training" in capsys.readouterr().err
    main([*train, "--minutes", "5"])
    result = json.loads((run / "result.json").read_text())
    assert result["updates"] == 4 and "ended" not in result
    main(export)
    card = (model / "README.md").read_text()
    assert "| updates | 4 |" in card and "ended" not in card


def test_training_that_diverges(tmp_path, capsys):
    for lr, updates in (("1e+30", 9), ("inf", 1)):
        options = options_of(replace(TINY, lr=float(lr), updates=updates))
        with pytest.raises(SystemExit):
            main(["train", "--out", str(tmp_path), *options, "--device", "cpu"])
        assert f"--lr {lr}: training has diverged at update " in capsys.readouterr().err
        assert not (tmp_path / "result.json").exists()


def test_command(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("TRANSFORMERS_VERBOSITY", raising=False)
    out = tmp_path / "run"
    for _ in range(2):  # the second one only tests the model again
        main(["train", "--out", str(out), *options_of(TINY), "--device", "cpu"])
        result = json.loads((out / "result.json").read_text())
        assert result["learned"] >= 2 and len(result["accuracy"]) == len(result["sizes"]) == 16 * TINY.longest
        assert result["parameters"] > 90_000 and result["span"] == 8 and 0 <= result["valid_accuracy"] <= 1
    assert "at least 90 % right up to length" in capsys.readouterr().out
    assert os.environ["TRANSFORMERS_VERBOSITY"] == "error", "no word of kernels that are not installed"
    sizes = replace(TINY, task="recall", symbols=32, longest=2, updates=1)
    main(["train", "--out", str(tmp_path / "recall"), *options_of(sizes), "--device", "cpu"])
    assert json.loads((tmp_path / "recall/result.json").read_text())["sizes"] == [2, 4, 8]


@pytest.mark.parametrize("given,threads", [(None, 1), ("3", 3)])
def test_threads(tmp_path, monkeypatch, torch_threads, given, threads):
    """Small models are fastest with one; a number that the user has chosen stays."""
    torch.set_num_threads(3)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if given:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    options = options_of(replace(TINY, updates=1), "device")
    main(["train", "--out", str(tmp_path / "run"), "--device", "cpu", *options])
    assert torch.get_num_threads() == threads


def test_exported_trackers_say_how_they_read(tmp_path):
    """Labels, of single sequences, whose names pipelines of transformers show."""
    pytest.importorskip("transformers")
    group = replace(TINY, task="word_problem", group="S3", model="feedback", updates=1)
    main(["train", "--out", str(tmp_path / "run"), *options_of(group), "--device", "cpu"])
    for overwrite in ([], ["--overwrite"]):
        main(["export", str(tmp_path / "run"), "--to", str(tmp_path / "model"), *overwrite])
    config = json.loads((tmp_path / "model/config.json").read_text())
    assert config["labels"] and config["separate_sequences"]
    assert config["architectures"] == ["FeedbackTransformerForTokenClassification"]
    assert config["label2id"] == {name: int(index) for index, name in config["id2label"].items()}
    assert list(config["id2label"].values())[3:5] == ["<unk>", "123"]
    assert '"123 132 213"' in (tmp_path / "model/README.md").read_text()


def test_how_elements_are_written():
    """In a model's card: as permutations, but for the group that has none."""
    result = {"flawless": 1.0, "slips": 0.0, "hardware": "a CPU", "seconds": 1, "sizes": [1]}
    for group, end in (("parity", "0 or 1"), ("S3", "the images of 1, 2, …")):
        (task, command, *_) = notes(Options(group=group, lr=0.25), result)
        assert task[1].endswith(f"{group}, each written as {end}")
        assert command == ("command", f"`fb-fairseq state-tracking train --out DIR --group {group} --lr 0.25`")


def test_exports_of_other_runs(tmp_path, refused):
    """An agent's, and one of before mistakes were counted."""
    save_file({"options": {"environment": "maze"}}, str(tmp_path / "checkpoint.pt"))
    export = ["export", str(tmp_path), "--to", str(tmp_path / "model")]
    assert f"{tmp_path}/checkpoint.pt: its content does not fit" in refused(main, export)
    save_file(Trainer(TINY, CPU).state_dict(), str(tmp_path / "checkpoint.pt"))
    (tmp_path / "result.json").write_text('{"updates": 0}')
    assert f"{tmp_path}: in its tests, mistakes were not counted; run the same training" in refused(main, export)
    (tmp_path / "model").mkdir()
    (tmp_path / "model/mine").touch()
    assert f"--to {tmp_path}/model: " in refused(main, export), "before anything is read"


@pytest.mark.parametrize(
    "given,message",
    [
        (["--group", "S4"], "--group S4: unknown; choose from parity"),
        (["--longest", "1"], "--longest 1: must be 2 or more"),
        (["--minutes", "0"], "--minutes 0: give a number above 0"),
        (["--lr", "0"], "--lr 0.0: must be greater than 0"),
        (["--heads", "3"], "--heads 3: does not divide --width 64"),
        (["--task", "recall", "--longest", "64"], "--symbols 256: tests have 256 keys"),
        (["--memory-composition", "layer:9"], "layer:9"),
        (["--model", "xlstm", "--width", "32"], "--width 32: xLSTM takes multiples of 64 only"),
        (["--model", "rwkv", "--layers", "1"], "--layers 1: RWKV-4 takes 2 or more"),
        (["--model", "mamba2", "--width", "48"], "--width 48: Mamba-2 takes multiples of 32 only"),
    ],
)
def test_bad_input(given, message, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["train", "--out", str(tmp_path / "out"), *given])
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not list((tmp_path).glob("out/*.pt"))
