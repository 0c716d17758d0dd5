"""The GPUs and the hardware of this machine, and the version of this package: on these, results are made."""

import os
import subprocess
from collections.abc import Mapping, Sequence

import fb_fairseq
from fb_fairseq.papers.steps.environment import CLONE, variables

DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")  # of NVIDIA, on Windows' Linux, of AMD


def last_line(words: Sequence[str], environment: Mapping[str, str]) -> str:
    """The last line that a command prints; empty if it fails.

    Args:
        words: of the command.
        environment: its variables.
    """
    try:
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout.strip().rpartition("\n")[2] if done.returncode == 0 else ""


def gpus() -> int:
    """The number of GPUs that torch sees. It is asked, in a process of its own, only where there is a driver."""
    if not any(map(os.path.exists, DRIVERS)):
        return 0
    return int(last_line(("python", "-c", "import torch; print(torch.cuda.device_count())"), variables()) or 0)


def hardware(environment: Mapping[str, str]) -> str:
    """All GPUs or, without any, the CPU and torch's number of threads; empty if torch cannot be asked. ``environment``:
    see ``variables``.
    """
    return last_line(
        ("python", "-c", "from fb_fairseq.hardware import training_hardware as name; print(name())"), environment
    )


def version() -> str:
    """The commit of a clone, with ``-dirty`` if something is changed in it; without one, this package's version."""
    git = ("git", "-C", CLONE, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
    found = last_line(git, os.environ) if os.path.exists(os.path.join(CLONE, ".git")) else ""
    return found or fb_fairseq.__version__
