"""Running the commands of a recipe: output, progress, failures, several at a time, and Ctrl-C."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from fb_fairseq.errors import UserError
from fb_fairseq.papers.runner import training
from fb_fairseq.papers.runner.machines import Machines
from fb_fairseq.papers.runner.processes import RUNNING, Interrupted, Jobs
from fb_fairseq.papers.runner.shell import Shell
from fb_fairseq.papers.runner.training import Progress, Stopwatch, Trainer, draw_curves, duration
from tests.conftest import REPOSITORY


@pytest.fixture
def shell(tmp_path):
    return Shell(str(tmp_path))


def test_files(tmp_path, shell):
    """Output appears when the command has succeeded; errors go to the log."""
    (tmp_path / "in").write_text("abc")
    shell.run("tr", "a-z", "A-Z", read=str(tmp_path / "in"), write=str(tmp_path / "out"), log=str(tmp_path / "log"))
    assert (tmp_path / "out").read_text() == "ABC"
    (tmp_path / "out").unlink()
    failing = ["sh", "-c", "echo half; echo 'no space' >&2; exit 3"]
    with pytest.raises(UserError, match="BPE failed: no space; see .*/log"):
        shell.run(*failing, what="BPE", write=str(tmp_path / "out"), log=str(tmp_path / "log"))
    assert not (tmp_path / "out").exists()
    shell.run("cat", text="a prompt", log=str(tmp_path / "log"))
    shell.run("pwd", folder="/", log=str(tmp_path / "log"), append=True)
    assert (tmp_path / "log").read_text() == "a prompt\n/\n"
    with pytest.raises(UserError, match="no-such-program: no such program beside this Python or on PATH; install"):
        shell.run("no-such-program")


def test_programs_beside_this_python_come_first(shell):
    """And they import this package, wherever they run."""
    found = shell.output("python", "-c", "import sys, fb_fairseq; print(sys.prefix, fb_fairseq.__file__)", what="x")
    assert found == f"{sys.prefix} {REPOSITORY}/fb_fairseq/__init__.py"


def test_jobs(capfd, shell):
    """Their lines bear their names; one that fails does not stop the others, and is named at the end."""

    def run(shell, name):
        shell.say("begins")
        shell.run("sh", "-c", f"echo {name}; test {name} != bad", what="training")

    jobs = Jobs(shell, 2)
    for name in ("a", "bad", "c"):
        jobs.start(name, lambda shell, name=name: run(shell, name))
    with pytest.raises(UserError, match="some runs failed: bad; see the lines with their names above. Run the same"):
        jobs.wait()
    printed = capfd.readouterr()
    lines = [f"[{name}] {line}" for name in ("a", "bad", "c") for line in ("begins", name)]
    assert sorted(printed.out.splitlines()) == sorted(lines)
    assert printed.err == "[bad] error: training failed; see above\n"
    jobs.start("d", lambda shell: run(shell, "d"))
    jobs.wait()


def test_one_job_stops_at_a_failure(shell):
    """Unless it is to keep going."""

    def fail(shell):
        raise UserError("no data")

    with pytest.raises(UserError, match="^no data$"):
        Jobs(shell).start("a", fail)
    jobs = Jobs(shell, keep_going=True)
    jobs.start("a", fail)
    with pytest.raises(UserError, match="some runs failed: a"):
        jobs.wait()


INTERRUPTED = """
import sys
from fb_fairseq.papers.runner.command import main
from fb_fairseq.papers.runner import command, processes, shell

class Recipe:
    def main(self, argv):
        runs = processes.Jobs(shell.Shell("/"), int(argv[0]))
        code = "import time, os; print('sleeps', os.getpid(), flush=True); time.sleep(60)"
        for name in "ab":
            runs.start(name, lambda shell: shell.run("python", "-c", code))
        runs.wait()
        print("all done")

command.find = lambda name: Recipe()
sys.exit(main(["x", sys.argv[1]]))
"""


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("sent,trap", [(signal.SIGINT, ""), (signal.SIGTERM, ""), (signal.SIGTERM, "trap '' INT HUP;")])
def test_interrupted(number, sent, trap):
    """Ctrl-C, or ``kill``, ends all commands, and then the recipe. Under ``nohup`` and ``&``, only ``kill`` does."""
    process = subprocess.Popen(
        ["bash", "-c", f'{trap} exec "$@"', "bash", sys.executable, "-c", textwrap.dedent(INTERRUPTED), str(number)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )
    started = [int(next(process.stdout).split()[-1]) for _ in range(number)]
    if trap:
        for ignored in (signal.SIGINT, signal.SIGHUP):
            process.send_signal(ignored)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=1)
    process.send_signal(sent)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130 and "all done" not in output and "sleeps" not in output, "none is started after it"
    assert errors.splitlines()[-1] == "error: interrupted; run the same command again to resume"
    for pid in started:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


# Saves a checkpoint, logs an entry, interrupts the recipe, and goes on.
INTERRUPTING = """#!{python} -IS
import os, signal, time
os.makedirs("{run}", exist_ok=True)
open("{run}/checkpoint_last.pt", "w").close()
print(r'''{entry}''', flush=True)
os.kill(os.getppid(), signal.SIGINT)
time.sleep(60)
"""


def test_a_training_that_is_interrupted_goes_on(tmp_path, shell, capsys):
    """It is resumed by the same command: what it has logged and how long it took stay, and it is not done."""
    programs, run = tmp_path / "bin", tmp_path / "m"
    programs.mkdir()
    entry = '2026 | INFO | train_inner | {"loss": "5", "wps": "9", "num_updates": "2"}'
    program = programs / "fairseq-train"
    shell.variables["PATH"] = f"{programs}:{os.environ['PATH']}"
    trainer = Trainer(str(tmp_path), Machines(hardware="a CPU"), ["--fp16"])

    def train():
        trainer.train(shell, str(run), "data", dict(lr=0.1), updates=4, every=2, seed=1)

    program.write_text(INTERRUPTING.format(python=sys.executable, run=run, entry=entry))
    program.chmod(0o755)
    with RUNNING.forwarding_signals(), pytest.raises(Interrupted):
        train()
    RUNNING.interrupted = False
    assert "update 2 of 4, loss 5, 9 tokens/s" in capsys.readouterr().err
    assert not (tmp_path / "m.done").exists() and (tmp_path / "m.seconds").exists()
    program.write_text("#!/bin/sh\necho resumed\n")
    train()
    assert (tmp_path / "m.done").read_text() == "4\n" and (tmp_path / "m.hardware").read_text() == "a CPU\n"
    log = (tmp_path / "m.log").read_text().splitlines()
    assert log[0].startswith("fairseq-train data --user-dir ") and log[-2:] == [log[0], "resumed"]
    assert "--lr 0.1 --validate-interval-updates 2" in log[0] and "--seed 1 --cpu" in log[0] and "--fp16" in log[0]
    train()
    assert capsys.readouterr().out.splitlines()[-1] == "== m: already trained for 4 updates"
    program.write_text("#!/bin/sh\necho 'error: --lr: too large'; exit 2\n")
    (tmp_path / "m.done").unlink()
    with pytest.raises(UserError, match="training failed: error: --lr: too large; see .*/m.log"):
        train()


def test_runs_without_curves_are_left_out(tmp_path, shell, monkeypatch):
    """A run that was interrupted before it logged anything has no curve; the others' are drawn."""
    drawn = []
    monkeypatch.setattr(shell, "run", lambda *words: drawn.append(list(words)))
    draw_curves(shell, str(tmp_path), "nll_loss")
    assert not drawn
    begun = "{'best_checkpoint_metric': 'nll_loss'}\n"
    point = '{"nll_loss": "6.6", "num_updates": "25"}\n'
    (tmp_path / "stage").mkdir()
    texts = dict.fromkeys(("a-finetuned", "b", "stage/a"), "") | dict.fromkeys(("a", "c-finetuned", "stage/c"), point)
    for name, text in {**texts, "c": '{"valid_nll_loss": "6.6", "valid_num_updates": "25"}\n'}.items():
        (tmp_path / f"{name}.log").write_text(begun + text)
    read = []
    has_logged = training.has_logged
    monkeypatch.setattr(training, "has_logged", lambda *words: read.append(words[0]) or has_logged(*words))
    draw_curves(shell, str(tmp_path), "nll_loss", [str(tmp_path / "stage")])
    assert len(read) == len(set(read)), "each log once"
    curves = [f"{name[0]}={tmp_path}/{name}.log" for name in ("a", "stage/c", "c", "c-finetuned")]
    ((*_, metric, name, _, out),) = drawn
    curves[1] = f"c={tmp_path}/stage/c.log"
    assert drawn[0][5 : 5 + len(curves)] == curves and (metric, name) == ("--metric", "nll_loss")
    assert out == f"{tmp_path}/curves.png"


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
