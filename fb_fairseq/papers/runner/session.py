"""One call of a recipe: where it runs, where it writes, and what ``--print`` says first."""

import os
import shlex
import sysconfig
from contextlib import contextmanager
from typing import Iterator

from fb_fairseq.errors import UserError
from fb_fairseq.files import check_own_folder
from fb_fairseq.papers.runner.shell import Shell

MARK = ".recipe"  # in the output folder
# Set by the scripts in examples/: the clone, and the folder in which they were called, where relative paths start.
ROOT_VARIABLE, CALLER_VARIABLE = "FB_FAIRSEQ_ROOT", "FB_FAIRSEQ_CALLER"


def new_shell(printing: bool) -> Shell:
    """A shell in the clone whose script was called, or in the current folder."""
    return Shell(os.path.abspath(os.environ.get(ROOT_VARIABLE) or os.getcwd()), printing)


@contextmanager
def output(shell: Shell, name: str, out: str) -> Iterator[None]:
    """Create the output folder, or print how to do so. It is removed at the end if nothing was written.

    It is a recipe's own, because recipes replace and remove files in it: a hidden file marks it.

    Args:
        shell: of the recipe.
        name: of the recipe.
        out: the folder.

    Raises:
        UserError: the folder cannot be written to, or has other files.
    """
    if shell.printing:
        if not shell.introduced:
            print_header(shell, name)
        shell.introduced = True
        shell.run("mkdir", "-p", out)
        yield
        return
    was_there, mark = os.path.isdir(out), os.path.join(out, MARK)
    check_own_folder("--out", out, MARK)
    os.makedirs(out, exist_ok=True)
    with open(mark, "a"):
        pass
    try:
        yield
    finally:
        if os.listdir(out) == [MARK]:
            os.remove(mark)
            if not was_there:
                os.rmdir(out)


def print_header(shell: Shell, name: str) -> None:
    """Print what comes before the recipe's own commands."""
    print(f"# What the recipe {name} runs,")
    print("# without its checks of the data, and without collecting the results in results.json.")
    print(shell.line(["cd", shell.root], folder="/dev/null"))
    if not os.environ.get(ROOT_VARIABLE):
        print(f'export PATH={shlex.quote(sysconfig.get_path("scripts"))}:"$PATH"')
        return
    venv = os.path.abspath(os.environ.get("FB_FAIRSEQ_VENV") or os.path.join(shell.root, ".venv"))
    programs = os.path.join(venv, "bin")
    quoted = shell.quoted(programs)
    if not programs.startswith(f"{shell.root}/"):
        print(f'export PATH={quoted}:"$PATH" PYTHONPATH="$PWD"')
    else:
        print(f'export PATH="$PWD"/{quoted}:"$PATH" PYTHONPATH="$PWD"')
    if not os.path.exists(os.path.join(programs, "python")):
        print("# (This environment does not exist yet. Without --print, the script creates it.)")


PLACEHOLDER = "DATA"  # stands for the data in what is printed


def find_data(shell: Shell, data: str, needed: bool, what: str = "DATA") -> str:
    """The absolute path of DATA; with ``--print``, the word DATA stands for it where it is missing.

    Raises:
        UserError: it is missing, and needed.
    """
    if data is None and shell.printing:
        return os.path.join(shell.root, PLACEHOLDER)
    if data is None and needed:
        raise UserError(f"{what} is missing; give it, or --help for what it is")
    return os.path.abspath(data) if data else ""
