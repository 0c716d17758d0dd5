"""Runs the commands of a recipe, or prints them as a person would type them (``--print``)."""

import os
import shlex
import subprocess
import sys
import sysconfig
from typing import Dict, List, Optional, Sequence

from fb_fairseq.errors import UserError
from fb_fairseq.files import atomic_write
from fb_fairseq.papers.runner.processes import RUNNING

WIDTH = 120  # of printed lines, where possible
# fairseq raises them before it loads any plugin.
WARNINGS = "ignore::FutureWarning,ignore::SyntaxWarning,ignore::DeprecationWarning"
PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def last_line(path: str) -> str:
    """The last line of a log; empty if there is none."""
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = file.read().strip().splitlines()
    return lines[-1] if lines else ""


class Shell:
    """Runs commands in one folder, or prints them.

    Args:
        root: the folder; printed paths are relative to it.
        printing: only print.
        prefix: of every line, to tell parallel runs apart.
    """

    def __init__(self, root: str, printing: bool = False, prefix: str = ""):
        self.root = root
        self.printing = printing
        self.prefix = prefix
        self.written: set = set()  # the files that printed commands write
        self.variables: Dict[str, str] = {}  # added to the environment of commands
        self.introduced = False  # whether what comes before all commands is printed

    def named(self, name: str) -> "Shell":
        """The same, for one of several parallel runs: its lines begin with its name."""
        other = Shell(self.root, self.printing, f"[{name}] ")
        other.written, other.variables = self.written, self.variables
        return other

    @property
    def user_dir(self) -> str:
        """The value of ``--user-dir``: the package's name where fairseq finds it by its name, else its folder."""
        here = os.path.join(self.root, "fb_fairseq")
        installed = sysconfig.get_path("purelib")
        by_name = os.path.samefile(here, PACKAGE) if os.path.isdir(here) else os.path.dirname(PACKAGE) == installed
        return "fb_fairseq" if by_name else PACKAGE

    def environment(self) -> Dict[str, str]:
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

    def say(self, text: str) -> None:
        """Tell how far the recipe is."""
        if not self.printing:
            self._write(f"{text}\n")

    def _write(self, text: str) -> None:
        sys.stdout.write(f"{self.prefix}{text}")  # in one piece: parallel runs write, too
        sys.stdout.flush()

    def comment(self, text: str) -> None:
        """When printing, say what the next commands do. (A remark) gets no blank line."""
        if self.printing:
            print(f"# {text}" if text.startswith("(") else f"\n# {text}")

    def run(
        self,
        *words: object,
        what: str = "",
        log: Optional[str] = None,
        read: Optional[str] = None,
        write: Optional[str] = None,
        text: Optional[str] = None,
        folder: Optional[str] = None,
        append: bool = False,
    ) -> None:
        """Run a command, or print it.

        Args:
            words: the command.
            what: it does, for errors.
            log: file for its output and errors or, with ``write``, for its errors; by default they are shown.
            read: file for its standard input.
            write: file for its output, which appears only when the command has succeeded.
            text: for its standard input, instead of ``read``.
            folder: in which it runs, instead of ``root``.
            append: to the log, instead of replacing it.

        Raises:
            UserError: the command failed; the message has the last line of the log.
        """
        command = list(map(str, words))
        if self.printing:
            folder = folder or self.root
            if folder != self.root:
                print(self.line(["cd", folder], self.root))
            redirection = [f"<{self.quoted(read, folder)}"] if read else []
            redirection += [f"<<<{shlex.quote(text)}"] if text else []
            redirection += [f">{self.quoted(write, folder)}"] if write else []
            print(self.line(command, folder, " ".join(redirection)))
            if folder != self.root:
                print(self.line(["cd", self.root], folder))
            self.written.add(write)
            return
        if write:
            with atomic_write(write) as temporary, open(temporary, "wb") as out:
                self._run(command, what, log, read, text, folder, append, out)
        else:
            self._run(command, what, log, read, text, folder, append, None)

    def _run(self, command, what, log, read, text, folder, append, out) -> None:
        name = what or os.path.basename(command[0])
        with open(read or os.devnull, "rb") as source, open(log or os.devnull, "ab" if append else "wb") as errors:
            pipes = {"stdin": source, "stdout": out, "stderr": None}
            if text is not None:
                pipes["stdin"] = subprocess.PIPE
            if log:
                pipes["stdout"], pipes["stderr"] = out or errors, errors
            elif self.prefix:
                pipes["stdout"], pipes["stderr"] = out or subprocess.PIPE, subprocess.STDOUT
            sys.stdout.flush()
            with RUNNING.start(command, cwd=folder or self.root, env=self.environment(), **pipes) as process:
                if text is not None:
                    process.stdin.write(f"{text}\n".encode())
                    process.stdin.close()
                if process.stdout is not None:
                    for line in process.stdout:
                        self._write(line.decode(errors="replace"))
        RUNNING.check()
        if process.returncode:
            raise UserError(f"{name} failed: {last_line(log)}; see {log}" if log else f"{name} failed; see above")

    def output(self, *words: object, what: str) -> str:
        """The output of a command, which is not printed by ``--print``.

        Raises:
            UserError: the command failed.
        """
        with RUNNING.start(
            list(map(str, words)), cwd=self.root, env=self.environment(), stdout=subprocess.PIPE
        ) as process:
            found = process.stdout.read().decode(errors="replace")
        RUNNING.check()
        if process.returncode:
            raise UserError(f"{what} failed; see the error above")
        return found.strip()

    def exists(self, path: str) -> bool:
        """Whether a file exists, or a printed command writes it."""
        return os.path.exists(path) or path in self.written

    def need(self, path: str, step: str) -> None:
        """Stop unless a file exists, which a step writes.

        Raises:
            UserError: it does not.
        """
        if not self.printing and not os.path.exists(path):
            raise UserError(f"{path} does not exist; run step {step} first")

    def relative(self, word: str, folder: str) -> str:
        """A path, or NAME=PATH, relative to a folder if it lies in it."""
        name, path = "", word
        before, sign, after = word.partition("=")
        if sign and after.startswith(f"{folder}/") and "/" not in before:
            name, path = f"{before}=", after
        if path.startswith(f"{folder}/") and len(path) > len(folder) + 1:
            path = path[len(folder) + 1 :]
            path = f"./{path}" if path.startswith("-") else path
        return name + path

    def quoted(self, path: str, folder: Optional[str] = None) -> str:
        """A path as it is typed in a shell."""
        return shlex.quote(self.relative(path, folder or self.root))

    def line(self, words: Sequence[str], folder: Optional[str] = None, redirection: str = "") -> str:
        """A command as a person types it. Lines are broken before options and redirections."""
        parts: List[str] = []
        for word in words:
            quoted = self.quoted(word, folder)
            is_option = word.startswith("-") and not word[1:2].isdigit()
            if not parts or is_option or len(parts[-1]) + len(quoted) > WIDTH - 7:
                parts.append(quoted)
            else:
                parts[-1] += f" {quoted}"
        parts += [redirection] if redirection else []
        lines = parts[:1]
        for part in parts[1:]:
            if len(lines[-1]) + len(part) > WIDTH - 3:
                lines[-1] += " \\"
                lines.append(f"    {part}")
            else:
                lines[-1] += f" {part}"
        return "\n".join(lines)
