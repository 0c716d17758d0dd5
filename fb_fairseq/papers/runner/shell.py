"""The commands of a recipe: a ``Shell`` runs them, a ``Printer`` (``--print``) shows them as a person would type them.
Nothing else knows the difference. What no command does, such as a check or a file of results, goes through
``Shell.do``, and the printer leaves it out."""

import glob
import os
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from fb_fairseq.errors import UserError
from fb_fairseq.files import atomic_write, check_marked_folder
from fb_fairseq.papers.runner.processes import RUNNING

WIDTH = 120  # of printed lines, where possible
# fairseq raises them before it loads any plugin.
WARNINGS = "ignore::FutureWarning,ignore::SyntaxWarning,ignore::DeprecationWarning"
PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MARK = ".recipe"  # a file in the output folder
# Set by the scripts in examples/: the clone, and the folder in which they were called, where relative paths start.
ROOT_VARIABLE, CALLER_VARIABLE = "FB_FAIRSEQ_ROOT", "FB_FAIRSEQ_CALLER"
PLACEHOLDER = "DATA"  # stands for the data in what is printed
COUNT = "import torch; print(torch.cuda.device_count())"
DESCRIBE = f"{COUNT}; from fb_fairseq.hardware import training_hardware; print(training_hardware())"


def new_shell(printing: bool) -> "Shell":
    """A shell in the clone whose script was called, or in the current folder."""
    return (Printer if printing else Shell)(os.path.abspath(os.environ.get(ROOT_VARIABLE) or os.getcwd()))


def read(path: str) -> str:
    """A file's text; empty if it does not exist."""
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def last_line(path: str) -> str:
    """The last line of a log; empty if there is none."""
    return (read(path).strip().splitlines() or [""])[-1]


class Shell:
    """Runs commands in the folder ``root``. Each line of output begins with the prefix, to tell parallel runs apart."""

    parallel = True  # whether several runs may go on at a time

    def __init__(self, root: str, prefix: str = ""):
        self.root, self.prefix = root, prefix
        self.variables: dict[str, str] = {}  # added to the environment of commands

    def named(self, name: str) -> "Shell":
        """The same, for one of several parallel runs."""
        other = Shell(self.root, f"[{name}] ")
        other.variables = self.variables
        return other

    @property
    def user_dir(self) -> str:
        """The value of ``--user-dir``: the package's name where fairseq finds it by its name, else its folder."""
        here = os.path.join(self.root, "fb_fairseq")
        installed = sysconfig.get_path("purelib")
        by_name = os.path.samefile(here, PACKAGE) if os.path.isdir(here) else os.path.dirname(PACKAGE) == installed
        return "fb_fairseq" if by_name else PACKAGE

    def environment(self) -> dict[str, str]:
        """The environment of commands: the programs beside this Python come first, and this package."""
        programs = [sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)]
        modules = [os.path.dirname(PACKAGE), os.environ.get("PYTHONPATH", "")]
        return {
            **os.environ,
            "PYTHONWARNINGS": os.environ.get("PYTHONWARNINGS") or WARNINGS,
            "PATH": os.pathsep.join(programs),
            "PYTHONPATH": os.pathsep.join(filter(None, modules)),
            **self.variables,
        }

    def do(self, function: Callable, *args: Any, otherwise: Any = None, **kwargs: Any) -> Any:
        """Call a function; with ``--print`` return ``otherwise`` instead."""
        return function(*args, **kwargs)

    def say(self, text: str) -> None:
        """Tell how far the recipe is."""
        self._write(f"{text}\n")

    def _write(self, text: str) -> None:
        sys.stdout.write(f"{self.prefix}{text}")  # in one piece: parallel runs write, too
        sys.stdout.flush()

    def comment(self, text: str) -> None:
        """With ``--print``, say what the next commands do. (A remark) gets no blank line."""

    def show(self, *words: object, **redirections: Any) -> None:
        """With ``--print``, show a command that stands for something that is done otherwise."""

    @contextmanager
    def writing(self, name: str, out: str) -> Iterator[None]:
        """Create the output folder of a recipe. It is removed at the end if nothing was written. It is a recipe's own,
        because recipes replace and remove files in it: a hidden file marks it."""
        was_there, mark = os.path.isdir(out), os.path.join(out, MARK)
        check_marked_folder("--out", out, mark)
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

    def run(
        self,
        *words: object,
        what: str = "",
        log: str | None = None,
        read: str | None = None,
        write: str | None = None,
        text: str | None = None,
        folder: str | None = None,
        append: bool = False,
    ) -> None:
        """Run a command. Raise the last line of the log if it fails.

        Args:
            what: it does, for errors.
            log: file for its output and errors or, with ``write``, for its errors; by default they are shown. What it
                had is replaced, unless it is to be appended to.
            read: file for its standard input, or text.
            write: file for its output, which appears only when the command has succeeded.
            folder: in which it runs, instead of ``root``.
        """
        command = list(map(str, words))
        with ExitStack() as files:
            out = files.enter_context(open(files.enter_context(atomic_write(write)), "wb")) if write else None
            source = files.enter_context(open(read or os.devnull, "rb"))
            errors = files.enter_context(open(log or os.devnull, "ab" if append else "wb"))
            pipes = {"stdin": source if text is None else subprocess.PIPE, "stdout": out, "stderr": None}
            if log:
                pipes.update(stdout=out or errors, stderr=errors)
            elif self.prefix:
                pipes.update(stdout=out or subprocess.PIPE, stderr=subprocess.STDOUT)
            sys.stdout.flush()
            with RUNNING.start(command, cwd=folder or self.root, env=self.environment(), **pipes) as process:
                if text is not None:
                    process.stdin.write(f"{text}\n".encode())
                    process.stdin.close()
                for line in process.stdout or ():
                    self._write(line.decode(errors="replace"))
            RUNNING.check()
            if process.returncode:
                name = what or os.path.basename(command[0])
                raise UserError(f"{name} failed: {last_line(log)}; see {log}" if log else f"{name} failed; see above")

    def output(self, *words: object, what: str) -> str:
        """Run a command, and return its output."""
        pipes = dict(cwd=self.root, env=self.environment(), stdout=subprocess.PIPE)
        with RUNNING.start(list(map(str, words)), **pipes) as process:
            found = process.stdout.read().decode(errors="replace")
        RUNNING.check()
        if process.returncode:
            raise UserError(f"{what} failed; see the error above")
        return found.strip()

    def look(self) -> tuple[int, str]:
        """Look how many GPUs this machine has, and what it is called."""
        gpus, hardware = self.output("python", "-c", DESCRIBE, what="looking for GPUs").splitlines()[-2:]
        return int(gpus), hardware

    def data(self, path: str | None, needed: bool, what: str = PLACEHOLDER) -> str:
        """The absolute path of the user's data; empty if there are none, and none are needed."""
        if path is None and needed:
            raise UserError(f"{what} is missing; give it, or --help for what it is")
        return os.path.abspath(path) if path else ""

    def exists(self, path: str) -> bool:
        """Whether a file exists, or a printed command writes it."""
        return os.path.exists(path)

    def need(self, path: str, step: str) -> None:
        """Stop unless a file exists, which a step writes."""
        if not os.path.exists(path):
            raise UserError(f"{path} does not exist; run step {step} first")

    def files(self, folder: str, end: str) -> list[str]:
        """The files of a folder whose names end so."""
        return sorted(glob.glob(os.path.join(glob.escape(folder), f"*{end}")))


class Printer(Shell):
    """Prints commands; paths are relative to ``root``."""

    parallel = False

    def __init__(self, root: str):
        super().__init__(root)
        self.written: list[str | None] = []  # the files that printed commands write
        self._introduced = False

    def do(self, function: Callable, *args: Any, otherwise: Any = None, **kwargs: Any) -> Any:
        return otherwise

    def say(self, text: str) -> None:
        """Say nothing."""

    def comment(self, text: str) -> None:
        print(f"# {text}" if text.startswith("(") else f"\n# {text}")

    def show(self, *words: object, **redirections: Any) -> None:
        self.run(*words, **redirections)

    @contextmanager
    def writing(self, name: str, out: str) -> Iterator[None]:
        if not self._introduced:
            self._introduce(name)
        self._introduced = True
        self.run("mkdir", "-p", out)
        yield

    def _introduce(self, name: str) -> None:
        """Print what comes before the recipe's own commands."""
        print(f"# What the recipe {name} runs,")
        print("# without its checks of the data, and without collecting the results in results.json.")
        print(self.line(["cd", self.root], folder="/dev/null"))
        if not os.environ.get(ROOT_VARIABLE):
            print(f'export PATH={shlex.quote(sysconfig.get_path("scripts"))}:"$PATH"')
            return
        venv = os.path.abspath(os.environ.get("FB_FAIRSEQ_VENV") or os.path.join(self.root, ".venv"))
        programs = os.path.join(venv, "bin")
        before = '"$PWD"/' if programs.startswith(f"{self.root}/") else ""
        print(f'export PATH={before}{self.quoted(programs)}:"$PATH" PYTHONPATH="$PWD"')
        if not os.path.exists(os.path.join(programs, "python")):
            print("# (This environment does not exist yet. Without --print, the script creates it.)")

    def run(self, *words, what="", log=None, read=None, write=None, text=None, folder=None, append=False, tee=None):
        """Print a command; ``tee`` is a file to which its output is added."""
        folder = folder or self.root
        if folder != self.root:
            print(self.line(["cd", folder], self.root))
        redirection = [f"<{self.quoted(read, folder)}"] if read else []
        redirection += [f"<<<{shlex.quote(text)}"] if text else []
        redirection += [f">{self.quoted(write, folder)}"] if write else []
        redirection += [f"2>&1 | tee -a {self.quoted(tee)}"] if tee else []
        print(self.line(list(map(str, words)), folder, " ".join(redirection)))
        if folder != self.root:
            print(self.line(["cd", self.root], folder))
        self.written += filter(None, [write, tee])

    def output(self, *words: object, what: str) -> str:
        self.run(*words)
        return ""

    def look(self) -> tuple[int, str]:
        """As ``FB_FAIRSEQ_GPUS`` says."""
        count = os.environ.get("FB_FAIRSEQ_GPUS")
        if not count:
            venv = os.environ.get("FB_FAIRSEQ_VENV")
            python = os.path.join(venv, "bin/python") if venv else "python"
            try:
                done = subprocess.run([python, "-c", COUNT], env=self.environment(), capture_output=True, text=True)
                count = done.stdout.strip()
            except OSError:  # the environment does not exist yet
                pass
        return int(count or 0), ""  # without torch there are none

    def data(self, path: str | None, needed: bool, what: str = PLACEHOLDER) -> str:
        return super().data(os.path.join(self.root, PLACEHOLDER) if path is None else path, needed)

    def exists(self, path: str) -> bool:
        return os.path.exists(path) or path in self.written

    def need(self, path: str, step: str) -> None:
        """Need nothing."""

    def files(self, folder: str, end: str) -> list[str]:
        written = dict.fromkeys(filter(None, self.written))
        return [path for path in written if os.path.dirname(path) == folder and path.endswith(end)]

    def relative(self, word: str, folder: str) -> str:
        """A path, or NAME=PATH, relative to a folder if it lies in it."""
        before, sign, after = word.partition("=")
        name, path = (f"{before}=", after) if sign and "/" not in before else ("", word)
        if path.startswith(f"{folder}/") and len(path) > len(folder) + 1:
            path = path[len(folder) + 1 :]
            path = f"./{path}" if path.startswith("-") else path
        return name + path

    def quoted(self, path: str, folder: str | None = None) -> str:
        """A path as it is typed in a shell."""
        return shlex.quote(self.relative(path, folder or self.root))

    def line(self, words: Sequence[str], folder: str | None = None, redirection: str = "") -> str:
        """A command as a person types it. Lines are broken before options and redirections."""
        parts: list[str] = []
        for word in words:
            quoted = self.quoted(word, folder)
            is_option = word.startswith("-") and not word[1:2].isdigit()
            if not parts or is_option or len(parts[-1]) + len(quoted) > WIDTH - 7:
                parts.append(quoted)
            else:
                parts[-1] += f" {quoted}"
        lines = parts[:1]
        for part in [*parts[1:], *([redirection] if redirection else [])]:
            if len(lines[-1]) + len(part) > WIDTH - 3:
                lines[-1] += " \\"
                lines.append(f"    {part}")
            else:
                lines[-1] += f" {part}"
        return "\n".join(lines)
