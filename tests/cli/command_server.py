"""Runs fairseq's commands, this package's and other programs in Python as a user would, each in a process of its own
that ``tests.cli.forked_commands`` forks.

``CommandServer.programs`` is a folder of clients with the names of the commands, for scripts.
"""

import array
import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
from typing import NamedTuple

from tests.cli.forked_commands import FAIRSEQ_PROGRAMS, OWN_COMMANDS, READY
from tests.conftest import REPOSITORY
from tests.surroundings import LIMIT, wait_for

SHARED = "FB_FAIRSEQ_TEST_SERVER"


class Result(NamedTuple):
    """How a command ended: its exit status, and the lines that it printed to standard output and standard error."""

    status: int
    out: list[str]
    errors: list[str]


class Running:
    """A command that runs.

    Attributes:
        pid: the number of its process.
        printed: the file that it prints to.
    """

    def __init__(self, connection: socket.socket, printed: pathlib.Path):
        connection.settimeout(LIMIT)
        self._answers = connection.makefile("r")
        self.pid = int(self._answers.readline())
        self.printed = printed

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def is_alive(self) -> bool:
        """Whether it still runs."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def wait(self) -> int:
        """Wait for its end. Returns its exit status, or minus the number of the signal that ended it."""
        return int(self._answers.readline())

    def lines(self) -> list[str]:
        """What it has printed so far."""
        return self.printed.read_text(errors="replace").splitlines()


# A program of ``CommandServer.programs``; it imports nothing of this project, to start at once.
CLIENT = """import array, json, os, signal, socket, sys
argv = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
job = dict(argv=argv, folder=os.getcwd(), environment=dict(os.environ), limit=None)
line = (json.dumps(job) + "\\n").encode()
connection = socket.socket(socket.AF_UNIX)
connection.connect({socket!r})
connection.sendmsg([line[:1]], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
connection.sendall(line[1:])
answers = connection.makefile("r")
answers.readline()
status = int(answers.readline())
if status < 0:
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


class CommandServer:
    """Starts the server, or joins the one whose folder the environment variable ``SHARED`` names; use it as a context
    manager."""

    def __init__(self):
        self.folder = pathlib.Path(os.environ.get(SHARED) or tempfile.mkdtemp())
        self.process = None  # stays None if another one started the server
        self.socket = self.folder / "socket"
        self.programs = self.folder / "bin"
        if SHARED in os.environ:
            return
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        environment.pop("FB_FAIRSEQ_DEBUG", None)
        command = [sys.executable, "-m", "tests.cli.forked_commands", str(self.socket)]
        pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.process = subprocess.Popen(command, env=environment, cwd=REPOSITORY, **pipes)
        self.programs.mkdir()
        for name in ["python", OWN_COMMANDS, *FAIRSEQ_PROGRAMS]:
            path = self.programs / name
            path.write_text(f"#!{sys.executable} -IS\n{CLIENT.format(socket=str(self.socket))}")
            path.chmod(0o755)

    def __enter__(self):
        if self.process is None:
            wait_for(self.socket.exists)  # commands wait until the server answers
        else:
            assert self.process.stdout.readline().strip() == READY
        return self

    def __exit__(self, *unused):
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _send(self, argv, streams: list, folder: str = ".", limit: int | None = None, environment=None) -> Running:
        """Send a command to the server, with its standard streams as files; the second is where it prints."""
        job = {
            "argv": list(map(str, argv)),
            "folder": os.path.abspath(folder),
            "limit": limit,
            "environment": environment or {},
        }
        line = (json.dumps(job) + "\n").encode()
        descriptors = array.array("i", [stream.fileno() for stream in streams])
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self.socket))
        connection.sendmsg([line[:1]], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
        connection.sendall(line[1:])
        return Running(connection, pathlib.Path(streams[1].name))

    def start(self, *argv, printed: pathlib.Path, environment: dict[str, str] | None = None) -> Running:
        """Start a command, which writes what it prints on both streams to a file."""
        with open(os.devnull, "rb") as nothing, open(printed, "wb") as file:
            return self._send(argv, [nothing, file, file], environment=environment)

    def run(self, *argv, limit: int | None = None, folder: str = ".", environment=None) -> Result:
        """Run ``fairseq-…``, ``fb-fairseq`` or ``python``, with the program's name before its arguments.

        Args:
            argv: all of them, as text or what is written as such.
            limit: bytes that no file may exceed, as on a full disk; None: no limit.
            folder: the folder to run it in.
            environment: variables that it has besides those of the server.
        """
        with tempfile.TemporaryDirectory() as printed, contextlib.ExitStack() as files:
            paths = [pathlib.Path(printed, name) for name in ("out", "err")]
            outputs = [files.enter_context(open(path, "wb")) for path in paths]
            nothing = files.enter_context(open(os.devnull, "rb"))
            status = self._send(argv, [nothing, *outputs], folder, limit, environment).wait()
            return Result(status, *(path.read_text(errors="replace").splitlines() for path in paths))
