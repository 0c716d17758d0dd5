"""Several processes: PyTorch's own backend on CPUs, a process that dies, and mistakes."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests.cli.checkpoints import assert_same_parameters
from tests.cli.fairseq_commands import (
    DISTRIBUTED,
    free_port,
    start_two_processes,
    train,
    train_in_two_processes,
    training_arguments,
)
from tests.conftest import REPOSITORY

COMMON = dict(disable_validation=True, no_epoch_checkpoints=True, max_update=20)


def test_pytorch_ddp_on_cpus(commands, byte_data, tmp_path):
    """fairseq's default backend. Two processes equal ``--update-freq 2``."""
    train_in_two_processes(commands, byte_data, tmp_path / "two", **COMMON, backend="pytorch_ddp")
    train(byte_data, tmp_path / "one", **COMMON, update_freq=2)
    assert_same_parameters(tmp_path / "two/checkpoint_last.pt", tmp_path / "one/checkpoint_last.pt")


def children(process: int) -> list:
    """The processes that torchrun started."""
    found = subprocess.run(["pgrep", "-P", str(process), "-f", "fairseq-train"], capture_output=True, text=True)
    return list(map(int, found.stdout.split()))


@pytest.mark.skipif(not os.path.isdir("/proc") or not shutil.which("pgrep"), reason="needs Linux's /proc and pgrep")
def test_one_process_is_killed(byte_data, tmp_path):
    """The other ends within seconds, and torchrun names the one that was killed."""
    arguments = training_arguments(byte_data, tmp_path / "ck", **{**COMMON, "max_update": 10**6, "log_interval": 1})
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", free_port()]
    program = [*launcher, os.path.join(os.path.dirname(sys.executable), "fairseq-train")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "PYTHONPATH": str(REPOSITORY)}
    command = [*map(str, [*program, *arguments, *DISTRIBUTED, "legacy_ddp"])]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    process = subprocess.Popen(command, env=environment, **pipes)
    try:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if '"num_updates": "3"' in line:
                break
        workers = children(process.pid)
        assert len(workers) == 2, "".join(lines)
        os.kill(max(workers), signal.SIGKILL)
        killed = time.monotonic()
        output, _ = process.communicate(timeout=60)
    finally:
        for left in [*children(process.pid), process.pid]:  # each is in a session of its own
            with contextlib.suppress(ProcessLookupError):
                os.kill(left, signal.SIGKILL)
    assert process.returncode != 0
    assert time.monotonic() - killed < 60
    assert re.search(rf"exitcode *: -9 \(pid: {max(workers)}\)", output), output[-2000:]
    assert not any(os.path.exists(f"/proc/{worker}") for worker in workers)


def test_a_mistake_is_one_line_of_each_process(commands, byte_data, tmp_path):
    for process in start_two_processes(commands, byte_data, tmp_path / "ck", **COMMON, attention_span=0):
        assert process.wait() == 2
        lines = process.lines()
        assert lines[-1].startswith("fairseq-train: error: --attention-span 0") and "Traceback" not in "".join(lines)
