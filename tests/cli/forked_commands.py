"""Runs commands that come in at a socket, each in a process forked from this one, which has imported everything.

(fairseq takes 5 s to import.) A connection is one command. It brings a line of JSON, ``{"argv": [...], "folder": PATH,
"environment": {...}, "limit": BYTES or null}``, and the command's standard streams as file descriptors. It gets two
lines, the number of the command's process and its exit status. ``tests.cli.command_server`` is the other end.
"""

import array
import contextlib
import gc
import importlib
import json
import logging
import os
import resource
import runpy
import signal
import socket
import sys
from collections.abc import Callable

from fb_fairseq.commands import FAIRSEQ_COMMANDS

MODULES = ("train", "validate", "eval_lm", "generate", "interactive", "preprocess", "hydra_train")
# fairseq's programs, and the modules of ``fairseq_cli`` that they run.
FAIRSEQ_PROGRAMS = {f"fairseq-{module.replace('_', '-')}": module for module in MODULES}
OWN_COMMANDS = "fb-fairseq"
READY = b"ready"
Programs = dict[str, Callable]  # the main function of each, by its name on the command line
SMOOTHED = "label_smoothed_cross_entropy"
USUAL_CHOICES = [  # kinds of fairseq's parsers, and choices for which its configuration is composed beforehand
    ("training", "--task streaming_lm --arch feedback_transformer_lm --criterion lm_loss --optimizer adam"),
    ("training", f"--task translation --arch feedback_decoder --criterion {SMOOTHED} --optimizer adam"),
    ("eval_lm", "--path a --task streaming_lm"),
    ("validation", "--path a --task streaming_lm"),
    ("generation", "--path a"),
    ("interactive_generation", "--path a --task streaming_lm"),
]


def run_as_main(program: Callable, argv: list[str]) -> None:
    """Run a program's main function as Python runs a script, and end this process with its exit status; without the
    functions of ``atexit``, which belong to the server.

    ``argv``: the program's name, and its arguments.
    """
    sys.argv = argv
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
    if isinstance(status, str):
        print(status, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status if isinstance(status, int) else int(status is not None))


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


def receive(connection: socket.socket) -> tuple[dict, list[int]]:
    """A command as it came in: what the line of JSON says, and its standard streams."""
    streams = array.array("i")
    line, ancillary, *_ = connection.recvmsg(1, socket.CMSG_SPACE(3 * streams.itemsize))
    streams.frombytes(ancillary[0][2])
    while not line.endswith(b"\n"):
        line += connection.recv(1 << 16)
    return json.loads(line), list(streams)


def run_command(job: dict, streams: list[int], programs: Programs) -> None:
    """Become the command: one of ``programs``, or else ``python``. See ``receive``."""
    for stream, given in enumerate(streams):
        os.dup2(given, stream)
    os.chdir(job["folder"])
    os.environ.update(job["environment"])
    if job["limit"] is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (job["limit"], job["limit"]))
    name, *rest = job["argv"]
    if rest[:2] == ["-m", "fb_fairseq"]:  # python's
        name = OWN_COMMANDS
        rest = rest[2:]
    command = rest[0].replace("_", "-") if rest else ""
    if not {name, command} & {*FAIRSEQ_COMMANDS, *FAIRSEQ_PROGRAMS}:
        sys.excepthook = sys.__excepthook__  # the patches replace it in fairseq's commands
        logging.root.handlers.clear()  # fairseq's commands log to standard output
    run_as_main(programs.get(name) or (lambda: python(*rest)), [name, *rest])


def warm_up() -> Programs:
    """Import everything that commands need, and compose fairseq's usual configurations."""
    programs = {
        name: importlib.import_module(f"fairseq_cli.{module}").cli_main for name, module in FAIRSEQ_PROGRAMS.items()
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
    quick_composition().__enter__()
    for kind, choices in USUAL_CHOICES:
        parser = getattr(options, f"get_{kind}_parser")()
        convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, ["data", *choices.split()]))
    gc.collect()
    gc.freeze()  # a garbage collection in a command takes a third of a second otherwise
    return {**programs, OWN_COMMANDS: main}


def answer(connection: socket.socket, programs: Programs) -> None:
    """Run the command that a connection brings, and report its process and status; then end this process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    job, streams = receive(connection)
    child = os.fork()  # it becomes the command
    if not child:
        connection.close()
        run_command(job, streams, programs)
    for stream in streams:
        os.close(stream)
    connection.sendall(f"{child}\n".encode())
    _, status = os.waitpid(child, 0)
    status = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
    with contextlib.suppress(BrokenPipeError):
        connection.sendall(f"{status}\n".encode())
    os._exit(0)


def serve(path: str) -> None:
    """Run commands that come in at the socket ``path``. Prints ``READY`` when it has imported everything."""
    ready = os.dup(1)
    os.dup2(2, 1)  # what modules print when they are imported
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    programs = warm_up()
    os.write(ready, READY + b"\n")
    os.close(ready)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait for commands
    while True:
        connection, _ = listener.accept()
        if not os.fork():  # this one waits for the command and reports its status
            listener.close()
            answer(connection, programs)
        connection.close()


if __name__ == "__main__":
    serve(sys.argv[1])
