"""Runs fairseq's commands and this package's as a user would, each in a process of its own, but forked from one that
has imported everything: fairseq takes 5 s to import.

The program reads one JSON line per command: ``{"argv": [...], "files": [OUT, ERR], "limit": BYTES, "folder": PATH,
"seconds": N}``, and prints its exit status. What the command prints goes to these files.
"""

import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
from typing import List, NamedTuple, Optional

from tests.conftest import REPOSITORY

COMMANDS = ("train", "validate", "eval_lm", "generate", "interactive", "hydra_train")
OWN_COMMANDS = "fb-fairseq"


class Result(NamedTuple):
    """How a command ended: its exit status, and the lines that it printed to standard output and standard error."""

    status: int
    out: List[str]
    errors: List[str]


class CommandServer:
    """Starts the program; use it as a context manager."""

    def __init__(self):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        environment.pop("FB_FAIRSEQ_DEBUG", None)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.cli.command_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            cwd=REPOSITORY,
        )

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.process.kill()
        self.process.communicate()

    def run(self, *argv, limit: Optional[int] = None, folder: str = ".", seconds: int = 0) -> Result:
        """Run ``fairseq-<command>`` or ``python -m fb_fairseq`` with these arguments.

        Args:
            argv: ``fairseq-train``, …, or ``fb-fairseq``, and the arguments.
            limit: the size in bytes that no file may exceed, as on a full disk.
            folder: working directory.
            seconds: after which the command is ended, with status ``-SIGALRM``; 0: never.
        """
        with tempfile.TemporaryDirectory() as printed:
            files = [os.path.join(printed, name) for name in ("out", "err")]
            job = {"argv": list(map(str, argv)), "files": files, "limit": limit, "folder": str(folder)}
            job["seconds"] = seconds
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()
            status = int(self.process.stdout.readline())
            return Result(status, *(pathlib.Path(name).read_text(errors="replace").splitlines() for name in files))


def run_as_main(program, argv: List[str]) -> None:
    """Run a program's main function as Python runs a script, up to the exit status."""
    sys.argv = argv
    status = 0
    try:
        try:
            sys.exit(program())
        except SystemExit:
            raise
        except BaseException:
            sys.excepthook(*sys.exc_info())
            status = 1
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def serve() -> None:
    """Read commands from standard input until it ends."""
    import importlib

    statuses = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what modules print when they are imported
    programs = {
        f"fairseq-{name.replace('_', '-')}": importlib.import_module(f"fairseq_cli.{name}").cli_main
        for name in COMMANDS
    }
    import fb_fairseq.models  # noqa: F401  forked processes find it imported
    import fb_fairseq.tasks  # noqa: F401
    from fb_fairseq.commands import COMMANDS as OWN
    from fb_fairseq.commands import main

    for command in OWN.values():
        importlib.import_module(command.module)
    programs[OWN_COMMANDS] = main
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if not child:
            for stream, name in enumerate(job["files"], 1):
                os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), stream)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.chdir(job["folder"])
            signal.alarm(job["seconds"])
            if job["limit"] is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (job["limit"], job["limit"]))
            if job["argv"][0] == OWN_COMMANDS:
                sys.excepthook = sys.__excepthook__  # the patches replace it in fairseq's commands
            run_as_main(programs[job["argv"][0]], job["argv"])
        status = os.waitpid(child, 0)[1]
        print(os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status), file=statuses, flush=True)


if __name__ == "__main__":
    serve()
