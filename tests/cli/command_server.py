"""Runs fairseq's commands, this package's and other programs in Python as a user would, each in a process of its own,
but forked from one that has imported everything: fairseq takes 5 s to import.

The server listens on a Unix socket. A connection is one command: it brings a line of JSON, ``{"argv": [...],
"folder": PATH, "environment": {...}, "limit": BYTES, "seconds": N}``, and the command's standard streams as file
descriptors, and gets two lines, the command's process and its exit status. ``programs`` is a folder of such clients
with the names of the commands, for scripts.
"""

import array
import contextlib
import gc
import importlib
import json
import logging
import os
import pathlib
import re
import resource
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from typing import NamedTuple

from fb_fairseq.commands import FAIRSEQ_COMMANDS
from tests.conftest import REPOSITORY
from tests.surroundings import LIMIT, wait_for

COMMANDS = ("train", "validate", "eval_lm", "generate", "interactive", "preprocess", "hydra_train")
OWN_COMMANDS = "fb-fairseq"
READY = b"ready"
SHARED = "FB_FAIRSEQ_TEST_SERVER"
SMOOTHED = "label_smoothed_cross_entropy"
USUAL_CHOICES = [  # kinds of fairseq's parsers, and choices for which its configuration is composed beforehand
    ("training", "--task streaming_lm --arch feedback_transformer_lm --criterion lm_loss --optimizer adam"),
    ("training", f"--task translation --arch feedback_decoder --criterion {SMOOTHED} --optimizer adam"),
    ("eval_lm", "--path a --task streaming_lm"),
    ("validation", "--path a --task streaming_lm"),
    ("generation", "--path a"),
    ("interactive_generation", "--path a --task streaming_lm"),
]


class Result(NamedTuple):
    """How a command ended: its exit status, and the lines that it printed to standard output and standard error."""

    status: int
    out: list[str]
    errors: list[str]


class Running:
    """A command that runs: the number of its process, and what it has printed so far, on both streams, to a file."""

    def __init__(self, connection: socket.socket, printed: pathlib.Path):
        connection.settimeout(LIMIT)
        self._answers = connection.makefile("r")
        self.pid, self.printed = int(self._answers.readline()), printed

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
        """Its exit status, minus the number of the signal that ended it."""
        return int(self._answers.readline())

    def lines(self) -> list[str]:
        """What it has printed so far."""
        return self.printed.read_text(errors="replace").splitlines()


class CommandServer:
    """Starts the server, or joins the one whose folder the environment variable ``SHARED`` names; use it as a context
    manager."""

    def __init__(self):
        self.folder, self.process = pathlib.Path(os.environ.get(SHARED) or tempfile.mkdtemp()), None
        self.socket = self.folder / "socket"
        self.programs = self.folder / "bin"
        if SHARED in os.environ:
            return
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        environment.pop("FB_FAIRSEQ_DEBUG", None)
        command = [sys.executable, "-m", "tests.cli.command_server", str(self.socket)]
        pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.process = subprocess.Popen(command, env=environment, cwd=REPOSITORY, **pipes)
        self.programs.mkdir()
        for name in ["python", OWN_COMMANDS, *(f"fairseq-{name.replace('_', '-')}" for name in COMMANDS)]:
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

    def _connect(self, streams: list[int], **job) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self.socket))
        line = (json.dumps(job) + "\n").encode()
        connection.sendmsg([line[:1]], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))])
        connection.sendall(line[1:])
        return connection

    def start(self, *argv, printed: pathlib.Path, environment: dict[str, str] | None = None) -> Running:
        """Start a command, which writes what it prints on both streams to a file."""
        with open(os.devnull) as nothing, open(printed, "wb") as file:
            streams = [nothing.fileno(), file.fileno(), file.fileno()]
            job = {"argv": list(map(str, argv)), "folder": os.getcwd(), "environment": environment or {}}
            return Running(self._connect(streams, **job), pathlib.Path(printed))

    def run(self, *argv, limit: int | None = None, folder: str = ".", seconds: int = 0, environment=None) -> Result:
        """Run ``fairseq-…`` or ``fb-fairseq``, with the program's name before its arguments.

        No file may exceed ``limit`` bytes, as on a full disk; after so many seconds, if any, the command is ended with
        status ``-SIGALRM``.
        """
        with tempfile.TemporaryDirectory() as printed, contextlib.ExitStack() as files:
            names = [os.devnull, *(os.path.join(printed, name) for name in ("out", "err"))]
            streams = [files.enter_context(open(name, mode)).fileno() for name, mode in zip(names, ("rb", "wb", "wb"))]
            job = dict(folder=os.path.abspath(folder), limit=limit, seconds=seconds, environment=environment)
            connection = self._connect(streams, argv=list(map(str, argv)), **job)
            connection.settimeout(LIMIT)
            answers = connection.makefile("r")
            _ = answers.readline()
            status = int(answers.readline())
            return Result(status, *(pathlib.Path(name).read_text(errors="replace").splitlines() for name in names[1:]))


CLIENT = """import array, json, os, signal, socket, sys
job = dict(argv=[os.path.basename(sys.argv[0]), *sys.argv[1:]], folder=os.getcwd(), environment=dict(os.environ))
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


def refused(result: Result, message: str) -> None:
    """Assert that a command ended with this one line, which names the option or file."""
    assert result.status == 2, (result.out + result.errors)[-30:]
    (line,) = result.errors  # (the log goes to standard output)
    assert re.search(message, line), line
    assert re.match(r"(fairseq-[a-z-]+|fb-fairseq [a-z -]+): error: ", line), line


def run_as_main(program, argv: list[str]) -> None:
    """Run a program's main function as Python runs a script, up to the exit status."""
    sys.argv = argv
    status = 0
    try:
        status = program()
    except SystemExit as stop:
        status = stop.code
    except BaseException:
        status = 1
        try:
            sys.excepthook(*sys.exc_info())
        except SystemExit as stop:  # (that of the patches)
            status = stop.code
    finally:
        if isinstance(status, str):
            print(status, file=sys.stderr)
        status = status if isinstance(status, int) else int(status is not None)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def python(*argv: str) -> None:
    """Run ``python -m MODULE``, ``python -c CODE`` or ``python SCRIPT`` with its arguments, as the main program."""
    kind, rest = (argv[0], argv[2:]) if argv[0] in ("-m", "-c") else ("", argv[1:])
    name = argv[1] if kind else argv[0]
    sys.argv = [name if kind == "" else kind, *rest]
    sys.path[0] = os.path.dirname(os.path.abspath(name)) if kind == "" else ""
    if kind == "-m":
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    elif kind == "-c":
        exec(compile(name, "<string>", "exec"), {"__name__": "__main__"})
    else:
        runpy.run_path(name, run_name="__main__")


def receive(connection: socket.socket):
    """A command as it came in: what it is, and its standard streams."""
    streams = array.array("i")
    line, ancillary, *_ = connection.recvmsg(1, socket.CMSG_SPACE(3 * streams.itemsize))
    streams.frombytes(ancillary[0][2])
    while not line.endswith(b"\n"):
        line += connection.recv(1 << 16)
    return json.loads(line), list(streams)


def run_command(job: dict, streams: list[int], programs: dict) -> None:
    """Become the command."""
    for stream, given in enumerate(streams):
        os.dup2(given, stream)
    os.chdir(job["folder"])
    os.environ.update(job.get("environment") or {})
    signal.alarm(job.get("seconds") or 0)
    if job.get("limit") is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (job["limit"], job["limit"]))
    name, *rest = job["argv"]
    if not name.startswith("fairseq-") and not set(rest[:1]) & FAIRSEQ_COMMANDS.keys():
        sys.excepthook = sys.__excepthook__  # the patches replace it in fairseq's commands
        logging.root.handlers.clear()  # fairseq's commands log to standard output
    run_as_main(programs.get(name) or (lambda: python(*rest)), job["argv"])


def serve(path: str) -> None:
    """Run commands that come in at this socket."""
    ready = os.dup(1)
    os.dup2(2, 1)  # what modules print when they are imported
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    programs = {
        f"fairseq-{name.replace('_', '-')}": importlib.import_module(f"fairseq_cli.{name}").cli_main
        for name in COMMANDS
    }
    import torch._dynamo  # noqa: F401  when the first optimizer is made
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    import fb_fairseq.models  # noqa: F401  forked processes find it imported
    import fb_fairseq.tasks  # noqa: F401
    from fb_fairseq.commands import COMMANDS as OWN
    from fb_fairseq.commands import main
    from tests.cli.quick_composition import quick_composition

    for module, _ in OWN.values():
        importlib.import_module(f"fb_fairseq.{module}")
    programs[OWN_COMMANDS] = main
    quick_composition().__enter__()
    for kind, *choices in USUAL_CHOICES:
        parser = getattr(options, f"get_{kind}_parser")()
        convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, ["data", *" ".join(choices).split()]))
    gc.collect()
    gc.freeze()  # a garbage collection in a command takes a third of a second otherwise
    os.write(ready, READY + b"\n")
    os.close(ready)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait for commands
    while True:
        connection, _ = listener.accept()
        if os.fork():
            connection.close()
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        job, streams = receive(connection)
        child = os.fork()
        if not child:
            connection.close()
            listener.close()
            run_command(job, streams, programs)
        for stream in streams:
            os.close(stream)
        connection.sendall(f"{child}\n".encode())
        status = os.waitpid(child, 0)[1]
        status = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
        with contextlib.suppress(BrokenPipeError):
            connection.sendall(f"{status}\n".encode())
        os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1])
