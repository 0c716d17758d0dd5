"""The progress of recipes: a line for each log entry, with speed and the time left."""

from fb_fairseq.papers.runner.training import Progress, Stopwatch, duration

ENTRY = '2026 | INFO | train_inner | {{"loss": "{loss}", "wps": "{wps}", "num_updates": "{updates}"}}\n'


def test_lines():
    now = [0.0]
    progress = Progress(1000, clock=lambda: now[0])
    now[0] = 5.0
    first = progress.line(ENTRY.format(loss=5.5, wps=8300.4, updates=500))
    assert first == "update 500 of 1,000, loss 5.5, 8,300 tokens/s", "resumed: no speed is known yet"
    now[0] = 65.0
    assert progress.line(ENTRY.format(loss=5, wps=9, updates=600)).endswith(", 9 tokens/s, 4 min left")
    assert progress.line("2026 | INFO | fairseq_cli.train | {'a': 1}") is None


def test_durations():
    assert [duration(seconds) for seconds in (45, 720, 12600)] == ["45 s", "12 min", "3.5 h"]


def test_display(capsys):
    """Without a terminal a line is shown for every tenth; on one, a line is kept up to date."""
    display = Progress(100, prefix="[a] ")
    assert not display.show("2026 | INFO | start")
    assert all(display.show(ENTRY.format(loss=1, wps=2, updates=n)) for n in range(1, 101))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in lines][:2] == ["[a] update 1 of 100", "[a] update 10 of 100"]
    assert len(lines) == 11
    display = Progress(100, terminal=True)
    for n in (1, 2):
        display.show(ENTRY.format(loss=1, wps=2, updates=n))
    display.end()
    shown = capsys.readouterr().err
    assert shown.count("\r") == 2 and shown.count("\n") == 1


def test_seconds(tmp_path):
    """The time is added to that of earlier parts of the run."""
    now, file = [50.0], tmp_path / "seconds"
    for total in ("60\n", "120\n"):
        stopwatch = Stopwatch(str(file), clock=lambda: now[0])
        now[0] += 60
        stopwatch.write()
        assert file.read_text() == total
