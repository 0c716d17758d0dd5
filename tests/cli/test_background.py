"""Jobs in the background: ``kill`` ends commands with their status, and what they have started ends with them."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from fb_fairseq.patches.processes import end_with_parent
from tests.conftest import REPOSITORY
from tests.surroundings import wait_for

PROGRAM = "import sys, torch; from tests.cli import test_background as t; torch.multiprocessing.spawn(t.child)"


def child(rank: int) -> None:
    """Print the number of this process, which ``torch.multiprocessing`` has spawned, and wait."""
    end_with_parent()
    print(os.getpid(), flush=True)
    time.sleep(600)


def is_running(pid: int) -> bool:
    """Whether a process runs; one that has ended, but that nobody has waited for, does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's prctl")
@pytest.mark.parametrize("trap", ["", "trap '' INT;"], ids=("foreground", "background"))
def test_processes_end_with_the_one_that_spawned_them(trap):
    assert hasattr(torch.multiprocessing, "_prctl_pr_set_pdeathsig")
    command = ["bash", "-c", f'{trap} exec "$@"', "bash", sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as parent:
        pid = int(parent.stdout.readline())
        parent.send_signal(signal.SIGTERM)
        assert parent.wait() == -signal.SIGTERM
    wait_for(lambda: not is_running(pid))


@pytest.mark.parametrize("arguments", [["generate", "--length", "1000000"], ["explore", "--port", "0"]])
def test_other_commands_end_at_once(arguments, language_models, byte_data):
    """In a background job, by ``kill``, with its status."""
    if arguments[0] == "explore":
        pytest.importorskip("gradio")
    path = ["--path", language_models["feedback_transformer_lm"]]
    path = path if arguments[0] == "generate" else path[1:]
    own = [sys.executable, "-m", "fb_fairseq", *arguments, *map(str, path), "--data", str(byte_data), "--cpu"]
    command = ["bash", "-c", "trap '' INT HUP; exec \"$@\"", "bash", *own]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=REPOSITORY) as process:
        assert process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        assert process.poll() is None, "ignored"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM
