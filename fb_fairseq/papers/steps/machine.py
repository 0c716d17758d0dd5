"""This machine: its GPUs and its hardware, and the environment in which the commands of recipes run."""

import os
import subprocess
import sysconfig
from collections.abc import Mapping, Sequence

import fb_fairseq

NAME = fb_fairseq.__name__
PACKAGE = os.path.abspath(fb_fairseq.__path__[0])
CLONE = os.path.dirname(PACKAGE)
DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")  # of NVIDIA, on Windows' Linux, of AMD
# fairseq raises them before it loads any plugin.
WARNINGS = "ignore::FutureWarning,ignore::SyntaxWarning,ignore::DeprecationWarning"
# Set by the scripts in examples/: the environment that they use, and the folder in which they were called, where
# relative paths start.
ENVIRONMENT, CALLER = "FB_FAIRSEQ_VENV", "FB_FAIRSEQ_CALLER"


def variables() -> dict[str, str]:
    """The environment of commands: programs beside this Python and this package come first."""
    chosen = os.environ.get(ENVIRONMENT)
    programs = os.path.join(os.path.abspath(chosen), "bin") if chosen else sysconfig.get_path("scripts")
    return {
        **os.environ,
        "PATH": os.pathsep.join([programs, os.environ.get("PATH", os.defpath)]),
        "PYTHONPATH": os.pathsep.join(filter(None, [CLONE, os.environ.get("PYTHONPATH", "")])),
        "PYTHONWARNINGS": os.environ.get("PYTHONWARNINGS") or WARNINGS,
    }


def resolved(words: Sequence[object]) -> list[str]:
    """The words of a command, with this package's folder as ``--user-dir``, unless its name is one here."""
    found = list(map(str, words))
    if not (os.path.isdir(NAME) and os.path.samefile(NAME, PACKAGE)):
        found = [
            PACKAGE if (before, word) == ("--user-dir", NAME) else word for before, word in zip(["", *found], found)
        ]
    return found


def output(words: Sequence[str], environment: Mapping[str, str]) -> str:
    """The last line that a command prints; empty if it fails."""
    try:
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout.strip().rpartition("\n")[2] if done.returncode == 0 else ""


def gpus() -> int:
    """The number of GPUs that torch sees. It is asked, in a process of its own, only where there is a driver."""
    if not any(map(os.path.exists, DRIVERS)):
        return 0
    return int(output(("python", "-c", "import torch; print(torch.cuda.device_count())"), variables()) or 0)


def hardware(environment: Mapping[str, str]) -> str:
    """All GPUs or, without any, the CPU and torch's number of threads; empty if torch cannot be asked."""
    return output(
        ("python", "-c", "from fb_fairseq.hardware import training_hardware as name; print(name())"), environment
    )


def version() -> str:
    """The commit of a clone, with ``-dirty`` if something is changed in it; without one, this package's version."""
    git = ("git", "-C", CLONE, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
    found = output(git, os.environ) if os.path.exists(os.path.join(CLONE, ".git")) else ""
    return found or fb_fairseq.__version__
