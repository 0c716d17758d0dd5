"""Training one model with ``fairseq-train``: its command, its log and its progress, and whether it is done already. The
options that a run was trained with are kept beside it, RUN.setting, and others are refused."""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from fb_fairseq.errors import UserError
from fb_fairseq.files import atomic_write
from fb_fairseq.papers.runner.machines import Machines
from fb_fairseq.papers.runner.processes import RUNNING
from fb_fairseq.papers.runner.settings import Options, words
from fb_fairseq.papers.runner.shell import Shell, last_line, read

NEVER = 1_000_000  # epochs: validation and checkpoints follow the updates, as an epoch's length depends on the data
INTERVAL = 25  # updates between log entries, or fewer: at least ten points in figures
TENTHS = 10
ENTRY = re.compile(r"\| train_inner \| (\{.*\})")
NAMES_AN_ERROR = re.compile(r"(Error|error): ")
OPTION = re.compile(r"--[A-Za-z]")
MAY_CHANGE = re.compile(
    r"--(.*interval.*|cpu|ddp-backend|distributed-.*|log-.*|max-update|num-workers|patience|save-dir|step-loop.*|"
    r"stop-time-hours|tensorboard-logdir|user-dir)$"
)
PER_PROCESS = "--batch-size", "--max-tokens"
SHOWN = 3  # differences in the message


def duration(seconds: float) -> str:
    """As ``45 s``, ``12 min`` or ``3.5 h``."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


class Progress:
    """Shows the progress of a training on standard error: on a terminal in one line that is kept up to date, otherwise
    with a line for every tenth of the updates."""

    def __init__(self, target: int, prefix: str = "", terminal: bool = False, clock=time.monotonic):
        self.target, self.prefix, self.terminal, self.clock = target, prefix, terminal, clock
        self.updates = 0
        self.first: tuple[int, float] | None = None  # updates and time of the first entry: a run may be resumed
        self._shown = -1

    def line(self, text: str) -> str | None:
        """What to show after a line of the log; None if it is not one of fairseq's log entries."""
        found = ENTRY.search(text)
        if not found:
            return None
        entry = json.loads(found[1])
        self.updates = updates = int(entry["num_updates"])
        if self.first is None:
            self.first = (updates, self.clock())
            left = ""
        else:
            done, elapsed = updates - self.first[0], self.clock() - self.first[1]
            left = f", {duration(elapsed / max(done, 1) * (self.target - updates))} left"
        speed = f", {float(entry['wps']):,.0f} tokens/s" if "wps" in entry else ""
        return f"update {updates:,} of {self.target:,}, loss {entry['loss']}{speed}{left}"

    def show(self, text: str) -> bool:
        """Show the progress after a line of the log. Returns whether the line is one of fairseq's log entries."""
        line = self.line(text)
        if line is None:
            return False
        tenth = self.updates * TENTHS // self.target
        if self.terminal:
            print(f"\r{line:79}", end="", file=sys.stderr, flush=True)
        elif tenth > self._shown:
            print(f"{self.prefix}{line}", file=sys.stderr, flush=True)
        self._shown = max(self._shown, tenth)
        return True

    def end(self) -> None:
        """End the line."""
        if self.terminal and self._shown >= 0:
            print(file=sys.stderr)


class Stopwatch:
    """Adds the time since its creation to the seconds in a file."""

    def __init__(self, path: str, clock=time.monotonic):
        self.path, self.clock = path, clock
        self.start = clock()
        if os.path.exists(path):
            self.start -= int(Path(path).read_text())

    def write(self) -> None:
        """Write the total."""
        with atomic_write(self.path) as temporary, open(temporary, "w", encoding="utf-8") as file:
            file.write(f"{self.clock() - self.start:.0f}\n")


def trained_options(words: Sequence[str], out: str, processes: int) -> dict[str, str]:
    """The options that decide what is trained; those about logging, saving, devices and the number of updates may
    change. The number of processes may too, if ``--batch-size`` or ``--max-tokens``, times ``--update-freq``, makes up
    for it. The last one counts where one is given twice, as for fairseq. Paths in the recipe's folder, which may be
    moved, are written without it."""
    found: dict[str, str] = {}
    option = None
    for word in words:
        if OPTION.match(word):
            option, _, value = word.partition("=")
            found[option] = value
        elif option is not None:
            found[option] = f"{found[option]} {word.removeprefix(f'{out}/')}".strip()
    frequency = found.get("--update-freq", "1")
    if frequency.isdecimal():
        found.pop("--update-freq", None)
        for name in PER_PROCESS:
            if found.get(name, "").isdecimal():
                found[name] = str(int(found[name]) * int(frequency) * processes)
    return {name: value.replace("\n", "\\n") for name, value in sorted(found.items()) if not MAY_CHANGE.match(name)}


def differences(now: dict[str, str], then: dict[str, str]) -> list[str]:
    """What differs between options, each as a few words."""

    def number(value: str) -> float | str:
        try:
            return float(value)  # 2.5e-05 is 0.000025
        except ValueError:
            return value

    found = []
    for name in sorted({*now, *then}):
        if name not in then:
            found.append(f"{name} {now[name]}".strip() + " is new")
        elif name not in now:
            found.append(f"{name} {then[name]}".strip() + " is missing")
        elif number(now[name]) != number(then[name]):
            found.append(f"{name} {now[name]} instead of {then[name]}")
    return found


def keep_options(run: str, out: str, processes: int, words: Sequence[str]) -> None:
    """Write RUN.setting, an option per line. A run with checkpoints that were trained with other options is refused;
    the message names the differences."""
    file, now = Path(f"{run}.setting"), trained_options(words, out, processes)
    if file.exists() and any(Path(run).glob("*.pt")):
        then = dict(line.partition(" ")[::2] for line in file.read_text(encoding="utf-8").splitlines())
        found = differences(now, then)
        if found:
            more = f", and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            raise UserError(
                f"{run}: has other options: {', '.join(found[:SHOWN])}{more}; choose another --out, or delete it"
            )
    file.write_text("".join(f"{name} {value}".strip() + "\n" for name, value in now.items()), encoding="utf-8")


class Trainer:
    """Trains the models of a recipe."""

    def __init__(self, out: str, machines: Machines, extra: Sequence[str] = ()):
        self.out, self.machines, self.extra = out, machines, list(extra)

    def command(self, shell: Shell, run: str, data: str, options: Options, updates: int, every: int, seed: int) -> list:
        """The command that trains the model in the folder ``run``."""
        arguments = [
            data,
            "--user-dir",
            shell.user_dir,
            *words(options),
            "--validate-interval-updates",
            every,
            "--save-interval-updates",
            every,
            "--validate-interval",
            NEVER,
            "--save-interval",
            NEVER,
            "--no-epoch-checkpoints",
            "--seed",
            seed,
            *self.machines.cpu,
            "--log-format",
            "json",
            "--log-interval",
            min(INTERVAL, (updates + 9) // 10),
            *self.extra,
            "--max-update",
            updates,
            "--save-dir",
            run,
        ]
        program: list[object] = ["fairseq-train"]
        machines = self.machines
        if machines.nodes > 1:
            program = [
                "python",
                "-m",
                "torch.distributed.run",
                "--nnodes",
                machines.nodes,
                "--node-rank",
                machines.node_rank,
                "--nproc-per-node",
                machines.processes // machines.nodes,
                "--master-addr",
                machines.host,
                "--master-port",
                machines.port,
                # The first machine may be busy with other steps for hours before it joins.
                "--rdzv-conf",
                "timeout=86400",
                "-m",
                "fairseq_cli.train",
            ]
            machines.port += 1
            if machines.cpu:
                arguments += ["--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp"]
        return [str(word) for word in (*program, *arguments)]

    def train(
        self, shell: Shell, run: str, data: str, options: Options, *, updates: int, every: int, seed: int, renewed=False
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
            keep_options(run, self.out, self.machines.processes, options)
        # (All machines decide the same way: this file is removed only when fine-tuning starts over.)
        if not renewed and read(f"{run}.done").strip() == str(updates):
            shell.say(f"== {os.path.basename(run)}: already trained for {updates} updates")
            return
        shell.say(f"== {os.path.basename(run)}: {updates} updates; log: {log}")
        if first:
            Path(f"{run}.hardware").write_text(f"{self.machines.hardware}\n", encoding="utf-8")
        self._run(shell, command, log, updates, f"{run}.seconds" if first else None)
        if first and "--stop-time-hours" not in self.extra:  # (with it, training may have ended early)
            Path(f"{run}.done").write_text(f"{updates}\n")

    def _run(self, shell: Shell, command: list[str], log: str, updates: int, seconds: str | None) -> None:
        progress = Progress(updates, shell.prefix, sys.stderr.isatty() and not shell.prefix)
        stopwatch = Stopwatch(seconds) if seconds else None
        output = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with open(log, "a", encoding="utf-8", errors="replace") as file:
            file.write(f"{shlex.join(command)}\n")
            with RUNNING.start(command, cwd=shell.root, env=shell.environment(), **output) as process:
                for line in process.stdout:
                    text = line.decode(errors="replace")
                    file.write(text)
                    file.flush()
                    if progress.show(text) and stopwatch:
                        stopwatch.write()  # a run that is killed leaves them, too
            if stopwatch:
                stopwatch.write()
            progress.end()
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
