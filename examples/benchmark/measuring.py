"""What the scripts that measure on a GPU share: measurements in processes of their own, and their command line."""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

import torch  # noqa: E402

# Log lines about something that runs more slowly than it could, or not at all.
FALLBACK = re.compile(r"capturing failed|operations run|loop runs|is not available|Traceback")
HIDDEN = re.compile(  # JSON, logs, the profiler's lines; progress
    r"^\{|^\d{4}-\d\d-\d\d|^(USDT|DEBUG|ERROR|INFO|WARNING):|.*Warning:|"
    r"first call|timed run|.*: (speed with a|the largest) batch"
)
SHOWN_LOG_LINES = 8
STOPPING = 10  # seconds that a process has after Ctrl-C, in which a training saves its checkpoint

# Imports what takes long, and waits for the arguments of python -m before it goes on; without any it ends.
READY = """
import importlib, json, logging, runpy, sys
for name in ("torch", "fairseq.tasks", "fairseq.models", "fairseq.trainer"):
    try:
        importlib.import_module(name)
    except ImportError:
        pass
logging.root.handlers.clear()  # of fairseq-fixed, which sets up logging when it is imported
logging.root.setLevel(logging.WARNING)
line = sys.stdin.readline()
if line:
    sys.argv = json.loads(line)
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


class Measurement(NamedTuple):
    """A command and what its part of the page is called.

    Attributes:
        logs: the output is a log, of which the page shows a few lines.
    """

    title: str
    command: list[str]
    logs: bool = False


class Result(NamedTuple):
    """What came of a measurement.

    Attributes:
        lines: of the output, each with the time at which it came, in seconds from the start.
    """

    measurement: Measurement
    output: str
    seconds: float
    problem: str | None
    lines: list[tuple[float, str]] = []

    @property
    def fallbacks(self) -> list[str]:
        """The lines about fallbacks."""
        return [line.strip() for line in self.output.splitlines() if FALLBACK.search(line)]

    @property
    def shown(self) -> str:
        """The output without its JSON and log lines; of a log, its last lines about speed."""
        lines = self.output.splitlines()
        logged = [line for line in lines if "step loop" in line or "train_inner" in line][-SHOWN_LOG_LINES:]
        printed = [] if self.measurement.logs else [line for line in lines if not HIDDEN.match(line)]
        return "\n".join(printed + logged).strip("\n")


def popen(command: list[str]) -> subprocess.Popen:
    """Start a command in the repository, in a group of its own."""
    modules = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": modules, "PYTHONWARNINGS": "ignore"}
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return subprocess.Popen(
        command, cwd=REPOSITORY, env=environment, text=True, errors="replace", start_new_session=True, **pipes
    )


def ready() -> subprocess.Popen:
    """A process that has imported torch and fairseq by the time that a measurement needs it."""
    return popen([sys.executable, "-c", READY])


class Running:
    """A measurement in a process of its own.

    Args:
        measurement: what to run.
        process: one that is ``ready``, for ``python -m``.
    """

    def __init__(self, measurement: Measurement, process: subprocess.Popen | None = None):
        self.measurement = measurement
        self.lines: list[tuple[float, str]] = []
        self.error = ""
        self.start = time.monotonic()
        try:
            self.process = process or popen(measurement.command)
        except OSError as error:
            self.error = f"failed: {error.strerror}"
            return
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        try:
            if process:
                process.stdin.write(json.dumps(measurement.command[2:]) + "\n")
            self.process.stdin.close()
        except BrokenPipeError:  # it has ended already
            pass

    def _read(self) -> None:
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line))

    def stop(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to it and its children, which would go on using the GPU."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)

    def wait(self, folder: Path, limit: float, saves: bool = False) -> Result:
        """Let it run; its output goes to the folder, too.

        Args:
            folder: of the log.
            limit: seconds from now, after which it is stopped.
            saves: it is stopped by Ctrl-C first, and then has some seconds to save what it has.
        """
        if self.error:
            return Result(self.measurement, "", 0, self.error)
        problem = None
        try:
            self.process.wait(timeout=max(limit, 1))
        except subprocess.TimeoutExpired:
            problem = "stopped: the time was up"
            if saves:
                self.stop(signal.SIGINT)
                try:
                    self.process.wait(STOPPING)
                except subprocess.TimeoutExpired:
                    pass
        finally:
            self.stop()
            self.process.wait()
        seconds = time.monotonic() - self.start
        self.reader.join(STOPPING)
        output = "".join(line for _, line in self.lines)
        if self.process.returncode and not problem:
            last = next((line for line in reversed(output.splitlines()) if line.strip()), "")
            problem = f"failed with status {self.process.returncode}: {last.strip()}"
        name = re.sub(r"[^a-z0-9]+", "-", self.measurement.title.lower()).strip("-")
        (folder / f"{name}.log").write_text(output, encoding="utf-8")
        lines = [(moment - self.start, line) for moment, line in self.lines]
        return Result(self.measurement, output, seconds, problem, lines)


def typed(command: list[str]) -> str:
    """A command as the page shows it: Python by its name, other programs without their folder."""
    words = ["python" if word == sys.executable else word for word in command]
    return " ".join(os.path.basename(word) if os.path.isabs(word) else word for word in words)


def benchmark(what: str, title: str, sizes: dict[str, int], *more: str) -> Measurement:
    """One of ``python -m fb_fairseq benchmark``'s commands."""
    leave_out = {"train": (), "memory": (), "bptt": ("block", "batch_size")}.get(what, ("block",))
    options = [
        text for name, n in sizes.items() if name not in leave_out for text in (f"--{name.replace('_', '-')}", str(n))
    ]
    return Measurement(title, [sys.executable, "-m", "fb_fairseq", "benchmark", what, *options, *more])


def commit() -> str:
    """The commit that runs, where that is known."""
    try:
        done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True)
    except OSError:  # no git
        return "unknown"
    return done.stdout.strip() or "unknown"


def parse(parser: argparse.ArgumentParser, out: str) -> argparse.Namespace:
    """The command line: ``--minutes``, ``--out``, ``--cpu``, and what the parser has already."""
    parser.add_argument("--minutes", type=float, default=8, metavar="N", help="time for all of it (default: 8)")
    parser.add_argument("--out", type=Path, default=REPOSITORY / out, metavar="DIR", help=f"default: {out}")
    parser.add_argument("--cpu", action="store_true", help="tiny sizes on the CPU, to try the script itself")
    args = parser.parse_args()
    if not args.minutes > 0:
        parser.error(f"--minutes {args.minutes:g}: give a positive number")
    if not args.cpu and not torch.cuda.is_available():
        parser.error("torch finds no GPU; --cpu tries the script itself")
    args.out = args.out.absolute()
    args.out.mkdir(parents=True, exist_ok=True)
    return args
