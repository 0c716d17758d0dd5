"""The command of a step: how it is started, stopped, and ended."""

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from fb_fairseq.errors import UserError
from fb_fairseq.papers.steps import Step, environment
from fb_fairseq.papers.steps.progress import last_line

UNFINISHED = ".unfinished"  # end of the name of an output that is being written


@dataclass
class Running:
    """A command that runs.

    Attributes:
        process: the command.
        noted: until when its seconds are written down, in ``time.monotonic()``.
        log: the file of its output.
        start: where its output begins in the log, in bytes.
    """

    process: subprocess.Popen[bytes]
    noted: float
    log: str
    start: int


def launched(step: Step, log: str, variables: Mapping[str, str]) -> Running:
    """Start a command.

    Args:
        step: whose it is.
        log: file to which the command is added, and its output, unless that has a file of its own.
        variables: the command's environment.
    """
    words = environment.resolved(step.words)
    with open(log, "ab") as file:
        file.write(f"{shlex.join(words)}\n".encode())
        begin = file.tell()
    target = open(step.output + UNFINISHED, "wb") if step.output else open(log, "ab")
    with open(log, "ab") as errors, open(step.source or os.devnull, "rb") as source, target:
        try:
            process = subprocess.Popen(
                words, env=variables, stdin=source, stdout=target, stderr=errors, start_new_session=True
            )
        except FileNotFoundError:
            raise UserError(
                f"{words[0]}: no such program beside this Python or on PATH; install fb_fairseq with its extras, "
                "pip install 'fb_fairseq[plot,translation,rl]'"
            ) from None
    return Running(process, time.monotonic(), log, begin)


def finish(step: Step, running: Running) -> str:
    """End a step whose command has ended: its output, if it has succeeded, gets its name. Returns the error; empty if
    there is none.
    """
    status = running.process.returncode
    if status:
        return f"failed: {last_line(running.log, running.start) or f'status {status}'}"
    if step.output:
        os.replace(step.output + UNFINISHED, step.output)
    missing = [path for path in step.writes if not os.path.exists(path)]
    return f"did not write {missing[0]}" if missing else ""


def send(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a command and its children. (Programs take SIGTERM for what SIGHUP means here.)"""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM if number == getattr(signal, "SIGHUP", None) else number)
