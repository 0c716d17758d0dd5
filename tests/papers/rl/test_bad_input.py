"""Options, checkpoints and logs that are refused."""

import pytest

from fb_fairseq.errors import UserError
from fb_fairseq.papers.rl.command import main
from fb_fairseq.papers.rl.log import LOG_FILE, read_curve
from fb_fairseq.tensor_files import load_file, save_file


@pytest.mark.parametrize(
    "options,message",
    [
        ("--environment desert", "--environment desert: unknown; choose from corridor, maze"),
        ("--heads 3", "--heads 3: does not divide --width 256"),
        ("--environment maze --size 101", "--size 101: give 100 or less"),
        ("--agent gru", "--agent gru: unknown; choose from feedback, transformer, lstm"),
        ("--layers 0", "--layers 0: must be 1 or more"),
        ("--lr nan", "--lr nan: must be greater than 0"),
        ("--entropy-cost nan", "--entropy-cost nan: must be 0 or more"),
        ("--value-cost -1", "--value-cost -1.0: must be 0 or more"),
        ("--discount 2", "--discount 2.0: must be between 0 and 1"),
        ("--log-interval 0", "--log-interval 0: give 1 or more"),
    ],
)
def test_options_of_train(tmp_path, refused, options, message):
    out = tmp_path / "run"
    assert message in refused(main, ["train", "--out", str(out), *options.split()])
    assert not out.exists(), "nothing half-written"


@pytest.mark.parametrize(
    "options,message",
    [
        ("", "not a checkpoint, or one with objects that are not data"),
        ("--path /nowhere", "/nowhere: No such file or directory"),
        ("--out /", "--out /: is no file, but a folder, a device or a pipe; give the name of a file"),
    ],
)
def test_options_of_evaluate(refused, options, message):
    assert message in refused(main, ["evaluate", "--path", __file__, *options.split()])


@pytest.fixture
def small_run(tmp_path):
    """A run's command, without ``--frames``, and its checkpoint after 6 frames."""
    command = ["train", "--small", "--environments", "2", "--block", "3", "--cpu", "--out", str(tmp_path)]
    main([*command, "--frames", "6"])
    return command, tmp_path / "checkpoint.pt"


def test_one_file_for_two_results(small_run, tmp_path, refused):
    same = ["--record", str(tmp_path / "x.gif"), "--out", str(tmp_path / "run/../x.gif")]
    (tmp_path / "run").mkdir()
    line = refused(main, ["evaluate", "--path", str(small_run[1]), "--episodes", "1", *same])
    assert "the same file as --record; give another one" in line and not (tmp_path / "x.gif").exists()


def test_checkpoint_of_other_options(small_run, refused):
    command, checkpoint = small_run
    before = checkpoint.read_bytes()
    for change, message in (
        (["--agent", "lstm"], "made with --agent feedback, not lstm; give another --out"),
        (["--span", "3"], "made with --span 8, not 3"),
        (["--environment", "maze"], "made with --environment corridor, not maze"),
        (["--length", "5"], "made with --length 30, not 5"),
        (["--previous-action"], "made with --previous-action False, not True; give another --out"),
    ):
        assert message in refused(main, [*command, "--frames", "600", *change])
    assert checkpoint.read_bytes() == before


def test_a_size_that_is_left_out(tmp_path, refused):
    command = ["train", "--environment", "maze", "--agent", "lstm", "--environments", "2", "--block", "3", "--cpu"]
    command += ["--width", "8", "--layers", "1", "--out", str(tmp_path), "--size", "5"]
    main([*command, "--limit", "7", "--frames", "6"])
    assert "made with --limit 7, not None; give another --out" in refused(main, [*command, "--frames", "12"])


def test_damaged_checkpoint(small_run, refused):
    train, checkpoint = small_run
    for content, message in ((b"spam", "not a checkpoint"), (checkpoint.read_bytes()[:500], "truncated")):
        checkpoint.write_bytes(content)
        for command in (train, ["evaluate", "--path", str(checkpoint)]):
            line = refused(main, command)
            assert "checkpoint.pt: " in line and message in line


def test_training_that_diverges(tmp_path, refused):
    small = ["train", "--small", "--environments", "2", "--block", "3", "--cpu", "--out", str(tmp_path)]
    line = refused(main, [*small, "--frames", "600", "--lr", "1e20"])
    assert "training has diverged: its policy is not a number; train with a lower --lr" in line


@pytest.mark.parametrize(
    "changes", [{"sizes": 5}, {"sizes": {"length": "x"}}, {"environment": "maze", "sizes": None}, {"lr": "x"}]
)
def test_a_checkpoint_that_was_edited(small_run, refused, changes):
    _, checkpoint = small_run
    state = load_file(str(checkpoint))
    state["options"].update(changes)
    save_file(state, str(checkpoint))
    line = refused(main, ["evaluate", "--path", str(checkpoint), "--episodes", "2", "--cpu"])
    assert "checkpoint.pt: its " in line and "not fit" in line and "give an intact checkpoint" in line


@pytest.mark.parametrize("line", ["{", "\0", "5", '{"reward": 1}'])
def test_damaged_log(tmp_path, line):
    """Of the last line only, which an interrupted run has not ended, nothing is expected."""
    path = tmp_path / LOG_FILE
    path.write_text('{"frames": 1, "reward": 0.5}\n' + line + "\n")
    with pytest.raises(UserError, match=f"{LOG_FILE}: is damaged"):
        read_curve(str(tmp_path))
    path.write_text('{"frames": 1, "reward": 0.5}\n' + line)
    assert read_curve(str(tmp_path)) == [(1, 0.5)]
