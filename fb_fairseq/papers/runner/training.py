"""Training one model with ``fairseq-train``: its command, its log, and whether it is done already."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from fb_fairseq.errors import UserError
from fb_fairseq.papers.runner import trained_options
from fb_fairseq.papers.runner.machines import Machines
from fb_fairseq.papers.runner.processes import RUNNING
from fb_fairseq.papers.runner.progress import Display, Stopwatch
from fb_fairseq.papers.runner.settings import Options, words
from fb_fairseq.papers.runner.shell import Shell, last_line, read

NEVER = 1_000_000  # epochs: validation and checkpoints follow the updates, as an epoch's length depends on the data
INTERVAL = 25  # updates between log entries, or fewer: at least ten points in figures
NAMES_AN_ERROR = re.compile(r"(Error|error): ")


class Trainer:
    """Trains the models of a recipe."""

    def __init__(self, out: str, machines: Machines, extra: Sequence[str] = ()):
        self.out, self.machines, self.extra = out, machines, list(extra)

    def command(self, shell: Shell, run: str, data: str, options: Options, updates: int, every: int, seed: int) -> list:
        """The command that trains the model in the folder ``run``."""
        arguments = [
            *(data, "--user-dir", shell.user_dir, *words(options)),
            *("--validate-interval-updates", every, "--save-interval-updates", every),
            *("--validate-interval", NEVER, "--save-interval", NEVER, "--no-epoch-checkpoints", "--seed", seed),
            *(*self.machines.cpu, "--log-format", "json", "--log-interval", min(INTERVAL, (updates + 9) // 10)),
            *(*self.extra, "--max-update", updates, "--save-dir", run),
        ]
        program: list[object] = ["fairseq-train"]
        machines = self.machines
        if machines.nodes > 1:
            program = [
                *("python", "-m", "torch.distributed.run", "--nnodes", machines.nodes),
                *("--node-rank", machines.node_rank, "--nproc-per-node", machines.processes // machines.nodes),
                *("--master-addr", machines.host, "--master-port", machines.next_port()),
                # The first machine may be busy with other steps for hours before it joins.
                *("--rdzv-conf", "timeout=86400", "-m", "fairseq_cli.train"),
            ]
            if machines.cpu:
                arguments += ["--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp"]
        return [str(word) for word in (*program, *arguments)]

    def train(
        self,
        shell: Shell,
        run: str,
        data: str,
        options: Options,
        *,
        updates: int,
        every: int,
        seed: int,
        renewed: bool = False,
    ) -> None:
        """Train a model until ``updates``, validating and saving it every ``every`` updates. Writes the checkpoints to
        RUN/, the command and its log to RUN.log, the seconds that it took to RUN.seconds, and what it ran on to
        RUN.hardware. Resumes a run that was stopped, unless it is to be renewed, and skips one that is finished."""
        command = self.command(shell, run, data, options, updates, every, seed)
        rank = self.machines.node_rank
        log = f"{run}.log.node{rank}" if rank else f"{run}.log"
        shell.show(*command, tee=log)
        shell.do(self._train, shell, run, command, command[command.index(data) :], log, updates, renewed)

    def _train(self, shell: Shell, run: str, command, options, log: str, updates: int, renewed: bool) -> None:
        first = self.machines.node_rank == 0
        if first:
            trained_options.keep(run, self.out, self.machines.processes, options)
        # (All machines decide the same way: this file is removed only when fine-tuning starts over.)
        if not renewed and self.finished(run) == updates:
            shell.say(f"== {os.path.basename(run)}: already trained for {updates} updates")
            return
        shell.say(f"== {os.path.basename(run)}: {updates} updates; log: {log}")
        if first:
            Path(f"{run}.hardware").write_text(f"{self.machines.hardware}\n", encoding="utf-8")
        self._run(shell, command, log, updates, f"{run}.seconds" if first else None)
        if first and "--stop-time-hours" not in self.extra:  # (with it, training may have ended early)
            Path(f"{run}.done").write_text(f"{updates}\n")

    @staticmethod
    def finished(run: str) -> int | None:
        """The number of updates of a finished training; None if it is not finished."""
        done = read(f"{run}.done").strip()
        return int(done) if done.isdecimal() else None

    def _run(self, shell: Shell, command: list[str], log: str, updates: int, seconds: str | None) -> None:
        display = Display(updates, shell.prefix, sys.stderr.isatty() and not shell.prefix)
        stopwatch = Stopwatch(seconds) if seconds else None
        output = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with open(log, "a", encoding="utf-8", errors="replace") as file:
            file.write(f"{shlex.join(command)}\n")
            with RUNNING.start(command, cwd=shell.root, env=shell.environment(), **output) as process:
                for line in process.stdout:
                    text = line.decode(errors="replace")
                    file.write(text)
                    file.flush()
                    if display.show(text) and stopwatch:
                        stopwatch.write()  # a run that is killed leaves them, too
            if stopwatch:
                stopwatch.write()
            display.end()
        if RUNNING.interrupted:
            shell.say(self.last_error(log))  # it says at which update
            RUNNING.check()
        if process.returncode:
            raise UserError(f"training failed: {self.last_error(log)}; see {log}")

    def last_error(self, log: str) -> str:
        """The last line of a log; with several machines, the last one that names an error, which torchrun's table
        follows."""
        if self.machines.nodes > 1:
            lines = [line for line in read(log).splitlines() if NAMES_AN_ERROR.search(line)]
            errors = [line for line in lines if "ChildFailedError" not in line]
            if errors:
                return errors[-1].strip()
        return last_line(log)


def has_logged(log: str, metric: str) -> bool:
    """Whether a metric is in a log; a run that has only begun has logged nothing yet."""
    return bool(re.search(rf'["_]{metric}": ', read(log)))


def draw_curves(shell: Shell, out: str, metric: str, stages: Sequence[str] = ()) -> None:
    """Draw the learning curves of all OUT/<run>.log, with their fine-tuning, to OUT/curves.png. Those of a curriculum's
    first stages, in the folders ``stages``, come before."""
    logs, curves = shell.files(out, ".log"), []
    for log in logs:
        run = log[: -len(".log")]
        if run.endswith("-finetuned"):
            continue
        name = os.path.basename(run)
        before = [os.path.join(stage, f"{name}.log") for stage in stages]
        after = [path for path in [f"{run}-finetuned.log"] if path in logs]
        logged = [path for path in [*before, log, *after] if shell.do(has_logged, path, metric, otherwise=True)]
        curves += [f"{name}={path}" for path in logged] if log in logged else []
    if curves:
        shell.comment("draw the learning curves")
        target = os.path.join(out, "curves.png")
        shell.run("python", "-m", "fb_fairseq", "plot", "--curves", *curves, "--metric", metric, "--out", target)
