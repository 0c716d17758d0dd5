"""The environment in which the commands of recipes run: which Python, which package."""

import os
import sysconfig
from collections.abc import Sequence

import fb_fairseq
from fb_fairseq.command_line import converted

NAME = fb_fairseq.__name__
PACKAGE = os.path.abspath(fb_fairseq.__path__[0])
CLONE = os.path.dirname(PACKAGE)
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
    """The words of a command, with this package's folder in place of its name as ``--user-dir``, unless ./fb_fairseq is
    this folder.
    """
    found = list(map(str, words))
    if os.path.isdir(NAME) and os.path.samefile(NAME, PACKAGE):
        return found
    return converted(found, "--user-dir", lambda folder: PACKAGE if folder == NAME else folder)
