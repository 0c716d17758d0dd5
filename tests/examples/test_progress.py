"""The progress of recipes: a line for each log entry, with speed and the time left."""

import subprocess
import sys

from examples.progress import Progress, Stopwatch, duration
from tests.conftest import REPOSITORY

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


def test_program(tmp_path):
    """Everything goes to the log; without a terminal a line is shown for every tenth."""
    text = "start\n" + "".join(ENTRY.format(loss=1, wps=2, updates=n) for n in range(1, 101))
    command = [sys.executable, str(REPOSITORY / "examples/progress.py"), str(tmp_path / "log"), "100"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
    assert (tmp_path / "log").read_text() == text and not done.stdout
    assert [line.split(",")[0] for line in done.stderr.splitlines()][:3] == [
        "update 1 of 100",
        "update 10 of 100",
        "update 20 of 100",
    ]
    assert len(done.stderr.splitlines()) == 11


def test_seconds(tmp_path):
    """The time is added to that of earlier parts of the run."""
    now, file = [50.0], tmp_path / "seconds"
    for total in ("60\n", "120\n"):
        stopwatch = Stopwatch(str(file), clock=lambda: now[0])
        now[0] += 60
        stopwatch.write()
        assert file.read_text() == total


def test_seconds_of_a_killed_run(tmp_path):
    """They are written at each log entry."""
    seconds = tmp_path / "run.seconds"
    command = [sys.executable, str(REPOSITORY / "examples/progress.py"), str(tmp_path / "log"), "9", str(seconds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        program.stdin.write(ENTRY.format(loss=1, wps=2, updates=3))
        program.stdin.flush()
        assert program.stderr.readline() == "update 3 of 9, loss 1, 2 tokens/s\n"
        program.kill()
    assert seconds.read_text().strip().isdecimal()
