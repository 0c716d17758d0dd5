"""Calls of a recipe as processes: signals, two in one folder, a full disk."""

import signal
import subprocess
import sys

import pytest

from fb_fairseq.papers.results.record import read_record
from tests.conftest import REPOSITORY
from tests.surroundings import wait_for

LONG = """
import sys, time
open(sys.argv[1], "w")
print("begun", flush=True)
try:
    time.sleep({seconds})
except KeyboardInterrupt:
    {end}
"""
RUN = """
import signal, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # a job in the background ignores some
    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
sys.path.insert(0, {root!r})
from fb_fairseq.papers.steps import Step, engine
engine.machine.hardware = lambda environment: ""
steps = [Step("long", ["python", "-c", {long!r}, "out/a"], ["out/a"]), Step("next", ["touch", "out/b"], ["out/b"])]
try:
    {before}
    engine.run("own", steps, "out")
except Exception as error:
    sys.exit("error: " + str(error))
"""


def program(end="sys.exit(130)", seconds=100, before=""):
    """A recipe whose first step runs for so long, or until it is interrupted."""
    return RUN.format(root=str(REPOSITORY), long=LONG.format(end=end, seconds=seconds), before=before)


def start(folder, **how):
    """Start it in a process of its own, and wait until the first step has begun."""
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process = subprocess.Popen([sys.executable, "-c", program(**how)], cwd=folder, start_new_session=True, **pipes)
    log = folder / "out/logs/long.log"
    wait_for(lambda: log.exists() and "\nbegun" in log.read_text() or process.poll() is not None)
    return process


@pytest.mark.parametrize("number,status", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals(tmp_path, number, status):
    """The commands get them, nothing after them runs, and the half-written file does not count as done."""
    process = start(tmp_path)
    process.send_signal(number)
    printed, errors = process.communicate()
    assert errors == "interrupted; run the same command again to resume\n" and process.returncode == status, printed
    steps = read_record(str(tmp_path / "out"))["steps"]
    assert (tmp_path / "out/a").exists() and list(steps) == ["OUT/a"] and not steps["OUT/a"].get("done")


def test_the_second_ctrl_c_kills(tmp_path):
    """A command that goes on after the first one, which is waited for, and heeds no other."""
    deaf = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); print('saving', flush=True); time.sleep(100)"
    process = start(tmp_path, end=deaf)
    process.send_signal(signal.SIGINT)
    wait_for(lambda: "\nsaving" in (tmp_path / "out/logs/long.log").read_text())
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.communicate()[1].startswith("interrupted") and process.returncode == 130


def test_two_calls_on_one_folder(tmp_path):
    """The second one is refused in one line, and leaves the first one alone."""
    process = start(tmp_path)
    other = start(tmp_path)
    assert "another run is writing to this folder" in other.communicate()[1] and other.returncode == 1
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate()


@pytest.mark.skipif(sys.platform != "linux", reason="limits the size of files")
def test_a_full_disk(tmp_path):
    """A record that cannot be written is told in one line, and nothing counts as done."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({}, {}))"
    for size in (0, 100):  # nothing can be written, or the mark but no command
        words = [sys.executable, "-c", program(seconds=0, before=limit.format(size, size))]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 1 and "File too large" in done.stderr and not (tmp_path / "out/b").exists()
        assert len(done.stderr.splitlines()) == 1
    words = [sys.executable, "-c", program(seconds=0)]
    assert subprocess.run(words, cwd=tmp_path).returncode == 0 and (tmp_path / "out/b").exists()
