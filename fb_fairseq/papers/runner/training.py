"""Training one model with ``fairseq-train``: its command, its log, and whether it is done already."""

import json
import os
import re
import shlex
import subprocess
import sys
from typing import Callable, List, Optional, Sequence

from fb_fairseq.errors import UserError
from fb_fairseq.papers.runner import trained_options
from fb_fairseq.papers.runner.machines import Machines
from fb_fairseq.papers.runner.processes import RUNNING
from fb_fairseq.papers.runner.progress import Display, Stopwatch
from fb_fairseq.papers.runner.settings import Options, words
from fb_fairseq.papers.runner.shell import Shell, last_line

NEVER = 1_000_000  # epochs: validation and checkpoints follow the updates, as an epoch's length depends on the data
INTERVAL = 25  # updates between log entries, or fewer: at least ten points in figures
PARAMETERS = re.compile(r"shared model params: ([\d,]+)")
NAMES_AN_ERROR = re.compile(r"(Error|error): ")


class Trainer:
    """Trains the models of a recipe.

    Args:
        out: the recipe's folder.
        machines: on which it trains.
        extra: further options of ``fairseq-train``, as words.
    """

    def __init__(self, out: str, machines: Machines, extra: Sequence[str] = ()):
        self.out = out
        self.machines = machines
        self.extra = list(extra)
        self.logs: List[str] = []  # of the trainings that were printed

    def command(self, shell: Shell, run: str, data: str, options: Options, updates: int, every: int, seed: int) -> List:
        """The command that trains the model in the folder ``run``."""
        arguments = [
            *(data, "--user-dir", shell.user_dir, *words(options)),
            *("--validate-interval-updates", every, "--save-interval-updates", every),
            *("--validate-interval", NEVER, "--save-interval", NEVER, "--no-epoch-checkpoints", "--seed", seed),
            *(*self.machines.cpu, "--log-format", "json", "--log-interval", min(INTERVAL, (updates + 9) // 10)),
            *(*self.extra, "--max-update", updates, "--save-dir", run),
        ]
        program: List[object] = ["fairseq-train"]
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
        """Train a model, validating and saving it every ``every`` updates.

        Writes the checkpoints to RUN/, the command and its log to RUN.log, the seconds that it took to RUN.seconds, and
        what it ran on to RUN.hardware. Resumes a run that was stopped, and skips one that is finished.

        Args:
            shell: of the run.
            run: the folder of its checkpoints.
            data: the folder of its data.
            options: of ``fairseq-train``.
            updates: at which training ends.
            every: number of updates between validations.
            seed: of training.
            renewed: whether the run starts over.

        Raises:
            UserError: training failed, or the run was trained with other options, which RUN.setting has.
        """
        command = self.command(shell, run, data, options, updates, every, seed)
        first = self.machines.node_rank == 0
        log = f"{run}.log" if first else f"{run}.log.node{self.machines.node_rank}"
        if shell.printing:
            print(shell.line(command, redirection=f"2>&1 | tee -a {shell.quoted(log)}"))
            self.logs.append(f"{run}.log")
            return
        if first:
            trained_options.keep(run, self.out, self.machines.processes, command[command.index(data) :])
        # (All machines decide the same way: this file is removed only when fine-tuning starts over.)
        if not renewed and self.finished(run) == updates:
            shell.say(f"== {os.path.basename(run)}: already trained for {updates} updates")
            return
        shell.say(f"== {os.path.basename(run)}: {updates} updates; log: {log}")
        if first:
            with open(f"{run}.hardware", "w", encoding="utf-8") as file:
                file.write(f"{self.machines.hardware}\n")
        self._run(shell, command, log, updates, f"{run}.seconds" if first else None)
        if first and "--stop-time-hours" not in self.extra:  # (with it, training may have ended early)
            with open(f"{run}.done", "w") as file:
                file.write(f"{updates}\n")

    @staticmethod
    def finished(run: str) -> Optional[int]:
        """The number of updates of a finished training; None if it is not finished."""
        try:
            with open(f"{run}.done") as file:
                return int(file.read())
        except (OSError, ValueError):
            return None

    def _run(self, shell: Shell, command: List[str], log: str, updates: int, seconds: Optional[str]) -> None:
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
            with open(log, encoding="utf-8", errors="replace") as file:
                errors = [line for line in file if NAMES_AN_ERROR.search(line) and "ChildFailedError" not in line]
            if errors:
                return errors[-1].strip()
        return last_line(log)


def parameters_of(run: str) -> int:
    """The number of parameters, from the training log."""
    with open(f"{run}.log", encoding="utf-8", errors="replace") as file:
        found = PARAMETERS.findall(file.read())
    if not found:
        raise UserError(f"{run}.log: names no number of parameters; train the model again")
    return int(found[-1].replace(",", ""))


def has_logged(shell: Shell, log: str, metric: str) -> bool:
    """Whether a metric is in a log; a run that has only begun has logged nothing yet."""
    if shell.printing:
        return True
    if not os.path.exists(log):
        return False
    with open(log, encoding="utf-8", errors="replace") as file:
        return bool(re.search(rf'["_]{metric}": ', file.read()))


def collect_results(shell: Shell, out: str) -> None:
    """Merge OUT/<run>.json of all runs into OUT/results.json."""
    if shell.printing:
        return
    results = {}
    for name in sorted(os.listdir(out)):
        if name.endswith(".json") and name != "results.json":
            with open(os.path.join(out, name), encoding="utf-8") as file:
                results[name[: -len(".json")]] = json.load(file)
    path = os.path.join(out, "results.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(results, file, indent=4)
    shell.say(path)


def compare(shell: Shell, out: str) -> None:
    """Print the results beside the papers', with means and spreads over seeds."""
    shell.comment("compare with the papers' tables")
    shell.run("python", "-m", "fb_fairseq", "compare", out)


def draw_against(field: str, *metrics: str) -> Callable[[Shell, str], None]:
    """A figure of a recipe: metrics of OUT/results.json against a field of the results, such as ``layers`` or ``lr``.

    It is drawn to OUT/FIELD.png.
    """

    def draw(shell: Shell, out: str) -> None:
        shell.comment(f"draw the results against {'the number of layers' if field == 'layers' else field}")
        shell.run("python", "-m", "fb_fairseq.papers.runner.figures.against", out, field, *metrics)

    return draw


def draw_curves(shell: Shell, trainer: Trainer, metric: str, stages: Sequence[str] = ()) -> None:
    """Draw the learning curves of all OUT/<run>.log, with their fine-tuning, to OUT/curves.png.

    Args:
        shell: of the recipe.
        trainer: that has trained the models.
        metric: to draw.
        stages: folders of a curriculum's first stages, whose curves come before.
    """
    out = trainer.out
    logs = trainer.logs
    if not shell.printing:
        logs = [os.path.join(out, name) for name in sorted(os.listdir(out)) if name.endswith(".log")]
    logs = [log for log in logs if os.path.dirname(log) == out]
    curves = []
    for log in logs:
        run = log[: -len(".log")]
        if run.endswith("-finetuned"):
            continue
        name = os.path.basename(run)
        before = [os.path.join(stage, f"{name}.log") for stage in stages]
        after = [path for path in [f"{run}-finetuned.log"] if path in logs]
        logged = [path for path in [*before, log, *after] if has_logged(shell, path, metric)]
        if log in logged:
            curves += [f"{name}={path}" for path in logged]
    if curves:
        shell.comment("draw the learning curves")
        target = os.path.join(out, "curves.png")
        shell.run("python", "-m", "fb_fairseq", "plot", "--curves", *curves, "--metric", metric, "--out", target)
