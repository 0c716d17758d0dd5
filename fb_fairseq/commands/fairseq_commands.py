"""fairseq's commands with the plugin loaded: ``python -m fb_fairseq train …`` is ``fairseq-train --user-dir … …``.

From any folder, however the package is installed.
"""

import importlib
import os
import sys
from collections.abc import Callable

import fb_fairseq

USER_DIR, HYDRA_USER_DIR = "--user-dir", "common.user_dir="
NAME = fb_fairseq.__name__
PACKAGE = os.path.abspath(fb_fairseq.__path__[0])


def with_user_dir(argv: list[str]) -> list[str]:
    """The arguments with this package as ``--user-dir``, which processes that fairseq starts need. Another one stays;
    this package's name stands for its path."""
    if not any(word == USER_DIR or word.startswith(f"{USER_DIR}=") for word in argv):
        return [USER_DIR, PACKAGE, *argv]
    argv = [f"{USER_DIR}={PACKAGE}" if word == f"{USER_DIR}={NAME}" else word for word in argv]
    return [PACKAGE if (before, word) == (USER_DIR, NAME) else word for before, word in zip(["", *argv], argv)]


def with_hydra_user_dir(argv: list[str]) -> list[str]:
    """The same for ``fairseq-hydra-train``, among its overrides."""
    ours = f"{HYDRA_USER_DIR}{PACKAGE}"
    if any(word.startswith(HYDRA_USER_DIR) for word in argv):
        return [ours if word == f"{HYDRA_USER_DIR}{NAME}" else word for word in argv]
    overrides = [place for place, word in enumerate(argv) if "=" in word and not word.startswith("-")]
    place = overrides[0] if overrides else len(argv)
    return [*argv[:place], ours, *argv[place:]]


def command(name: str, argv: list[str]) -> Callable[[], None]:
    """One of fairseq's commands, to be called as the main program: its usage, log and error messages have its own name.
    ``name``: of the command, such as ``eval-lm``. ``argv``: its arguments."""
    module = importlib.import_module(f"fairseq_cli.{name.replace('-', '_')}")
    for ours in ("tasks", "models"):  # after the command's module, which the patches look for
        importlib.import_module(f"{NAME}.{ours}")
    sys.argv = [f"fairseq-{name}", *(with_hydra_user_dir if name == "hydra-train" else with_user_dir)(argv)]
    return module.cli_main
