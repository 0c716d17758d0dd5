"""Options, checkpoints and logs that are refused."""

import pytest

from fb_fairseq.errors import UserError
from fb_fairseq.papers.rl.command import main
from fb_fairseq.papers.rl.log import LOG_FILE, read_curve

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
        (TRAIN + "--lr -1", "--lr -1.0: must be greater than 0"),
        (TRAIN + "--optimizer sgd", "--optimizer sgd: unknown; choose from adam, rmsprop"),
        (TRAIN + "--discount 2", "--discount 2.0: must be between 0 and 1"),
        (TRAIN + "--log-interval 0", "--log-interval 0: give 1 or more"),
        ("evaluate --path /nowhere", "/nowhere: No such file or directory"),
        (EVALUATE, "not a checkpoint, or one with objects that are not data"),
        (EVALUATE + "--out /", "--out /: is no file, but a folder, a device or a pipe; give the name of a file"),
        (EVALUATE + "--episodes 0", "--episodes 0: give 1 or more"),
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
    for text, message in ((b"spam", "not a checkpoint"), (before[:500], "truncated")):
        (tmp_path / "checkpoint.pt").write_bytes(text)
        for command in (["train", *arguments], ["evaluate", "--path", str(tmp_path / "checkpoint.pt")]):
            line = refused(main, command)
            assert "checkpoint.pt: " in line and message in line


@pytest.mark.parametrize("line", ["{", "\0", "5", '{"reward": 1}'])
def test_damaged_log(tmp_path, line):
    path = tmp_path / LOG_FILE
    path.write_text('{"frames": 1, "reward": 0.5}\n' + line + "\n")
    with pytest.raises(UserError, match=f"{LOG_FILE}: is damaged"):
        read_curve(str(tmp_path))
    path.write_text('{"frames": 1, "reward": 0.5}\n' + line)
    assert read_curve(str(tmp_path)) == [(1, 0.5)], "an incomplete last line"
