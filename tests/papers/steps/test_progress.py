"""What a recipe prints of its steps while they run."""

from fb_fairseq.papers.steps.progress import Progress, duration, last_line


def test_progress(capsys, tmp_path, monkeypatch):
    """Numbers, times, and the last line of what takes long."""
    (tmp_path / "log").write_text(
        'command\n| train_inner | {"loss": "3.2", "wps": "7", "num_updates": "1250"}\nsaved\n'
    )
    clock = iter((0, 70, 80, 5000))
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    progress = Progress(["a", "b"])
    progress.start(1)
    for _ in range(2):
        progress.tell(1, str(tmp_path / "log"), 8)
    progress.end(1)
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["[2/2] b …", "[2/2] b, 1 min: update 1,250, loss 3.2", "[2/2] b: 1.4 h"]
    assert [duration(seconds) for seconds in (4, 59.7, 600, 3599, 7200)] == ["4 s", "1 min", "10 min", "1.0 h", "2.0 h"]
    (tmp_path / "log").write_bytes(b"x\rfirst\r\nsecond\n\n")
    assert last_line(str(tmp_path / "log"), 0) == "second" and last_line(str(tmp_path / "log"), 15) == ""
