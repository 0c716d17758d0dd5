"""Runs steps. A step is done if its files are there, and were written by this very command after all that it depends
on. So the same call again goes on where it was stopped: a step that was begun starts anew, a training from its
checkpoint. Steps that do not depend on each other may run at the same time; see ``Step``.
"""

import glob
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence, Set
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from fb_fairseq.checksums import checksum_of
from fb_fairseq.errors import UserError
from fb_fairseq.folders import check_marked_folder, lock_folder
from fb_fairseq.interruption import RESUME, handling
from fb_fairseq.papers.results.record import HERE, MARK, Entry, Record, read_record, write_record
from fb_fairseq.papers.results.settings import differences, makers, settings_of
from fb_fairseq.papers.steps import Step, environment, machine
from fb_fairseq.papers.steps.progress import EVERY, Progress, last_line
from fb_fairseq.papers.steps.show import typed

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]  # (Windows)
PAUSE = 0.05  # seconds between two looks at what runs


@dataclass
class Running:
    """A command that runs.

    Attributes:
        noted: until when its seconds are written down, in ``time.monotonic()``.
        log: the file of its output.
        start: where its output begins in the log, in bytes.
    """

    process: subprocess.Popen[bytes]
    noted: float
    log: str
    start: int


class Engine:
    """Runs the steps of a call.

    Args:
        recipe: its name.
        out: the output folder.
        steps: all steps, in order. Methods get the place of a step among them.
    """

    def __init__(self, recipe: str, out: str, steps: Sequence[Step]):
        self.out, self.steps = out, steps
        self.record: Record = read_record(out) or {"recipe": recipe, "steps": {}}
        if self.record["recipe"] != recipe:
            raise UserError(f"--out {out}: is of the recipe {self.record['recipe']}; give another folder")
        self.names = [self.here(step.writes[0]) for step in steps]
        paths = {path for step in steps for path in step.reads}  # the user's files; several steps may read one
        self.contents = {path: f"{os.path.getsize(path)} bytes, CRC {checksum_of(path)}" for path in paths}
        self.planned = {name: self.entry(step) for name, step in zip(self.names, steps)}
        # Of each step, the earlier ones that it depends on.
        self.after = [self.origins(place) for place in range(len(steps))]
        self.running: dict[int, Running] = {}
        self.stopped = 0  # the signal that stopped the call
        self.made_on: tuple[str, str] | None = None  # hardware, and version of this package

    def here(self, word: object) -> str:
        """A word with ``HERE`` in the place of the output folder."""
        name, equals, value = str(word).partition("=")
        for before, path in (("", str(word)), (f"{name}{equals}", value)):
            if path == self.out or path.startswith(f"{self.out}/"):
                return f"{before}{HERE}{path[len(self.out) :]}"
        return str(word)

    def entry(self, step: Step) -> Entry:
        """The entry that the record will have for a step."""
        reads = {path: self.contents[path] for path in step.reads}
        writes = list(map(self.here, step.writes))
        command = [*step.words, *(["<", step.source] if step.source else [])]
        return Entry(command=list(map(self.here, command)), reads=reads, writes=writes)

    def origins(self, place: int) -> list[int]:
        """The earlier steps whose files a step's words name, or which read a file of the user that it reads."""
        own = self.planned[self.names[place]]
        earlier = {name: self.planned[name] for name in self.names[:place]}
        found = {name for name, entry in earlier.items() if entry["reads"].keys() & own["reads"].keys()}
        for word in own["command"]:
            path = word if word.startswith(HERE) else word.partition("=")[2]
            if path == HERE:
                return list(range(place))
            if path.startswith(f"{HERE}/"):
                found |= set(makers(path, earlier))
        return [number for number, name in enumerate(self.names[:place]) if name in found]

    def check(self, processes: int) -> None:
        """Stop before anything runs if a training cannot begin, or was begun with other settings.

        Args:
            processes: of each training.
        """
        recorded = self.record["steps"]
        for step, name in zip(self.steps, self.names):
            entry = self.planned[name]
            if not step.trains:
                continue
            self.check_start(step)
            entry["processes"] = processes
            entry["settings"] = settings_of(name, {**recorded, **self.planned})
            folder = os.path.dirname(step.writes[0])
            begun = recorded.get(name, {}).get("settings", {})
            saved = begun and glob.glob(os.path.join(glob.escape(folder), "*.pt"))
            found = differences(entry["settings"], begun) if saved else []
            if found:
                raise UserError(
                    f"{folder}: was begun with other settings: {', '.join(found)}; choose another --out, or delete it"
                )

    def check_start(self, step: Step) -> None:
        """Stop if a training starts from a model that is not there, and that no step of this call trains."""
        for word in map(str, step.words):
            path = self.here(word)
            is_checkpoint = path.startswith(f"{HERE}/") and path.endswith(".pt")
            if is_checkpoint and not os.path.exists(word) and not any(makers(path, self.planned)):
                raise UserError(f"{word}: not there, but {step.does} starts from it; train this model, too")

    def is_done(self, place: int) -> bool:
        """Whether a step is done, provided that what it depends on is."""
        now = self.planned[self.names[place]]
        steps = self.record["steps"]
        then = steps.get(self.names[place], {})
        before = [steps[self.names[other]]["done"] for other in self.after[place]]
        return (
            then.get("done", 0) > max(before, default=0)
            and (then["command"], then["reads"]) == (now["command"], now["reads"])
            and all(map(os.path.exists, self.steps[place].writes))
        )

    def run(self, jobs: int, told: bool) -> None:
        """Run all steps that are not done. A step that fails does not stop those that do not depend on it.

        Args:
            jobs: how many may run at a time.
            told: whether their commands are printed.
        """
        waiting = list(range(len(self.steps)))
        done: set[int] = set()
        failed: dict[int, str] = {}  # errors; of steps that depend on one that failed, an empty one
        progress = Progress([step.does for step in self.steps])
        while self.running or waiting and not self.stopped:
            while not self.stopped and (place := self.next_step(waiting, done | failed.keys(), jobs)) is not None:
                waiting.remove(place)
                if failed.keys() & self.after[place]:
                    failed[place] = ""
                elif self.is_done(place):
                    done.add(place)
                    progress.end(place)
                    self.show(place)
                else:
                    progress.start(place)
                    if told:
                        print(typed(self.steps[place]), flush=True)
                    self.start(place, jobs)
            for place, running in list(self.running.items()):
                if running.process.poll() is None:
                    progress.tell(place, running.log, running.start)
                    if time.monotonic() - running.noted > EVERY:
                        self.note(place, running)
                elif error := self.finish(place):
                    failed[place] = f"{self.steps[place].does} {error}"
                    progress.end(place, error)
                else:
                    done.add(place)
                    step = self.steps[place]
                    progress.end(place, last_line(running.log, running.start) if step.shown and not step.output else "")
                    self.show(place)
            time.sleep(PAUSE)
        errors = [error for error in failed.values() if error]
        if errors and not self.stopped:
            raise UserError(f"{'; '.join(errors)}. Run the same command again to resume")

    def next_step(self, waiting: Sequence[int], ended: Set[int], jobs: int) -> int | None:
        """The first step that may begin; None if none may before a running one has ended.

        Args:
            waiting: the steps that have not begun, in order.
            ended: those that are done, or have failed.
            jobs: how many may run at a time.
        """
        for place in waiting:
            limit = 1 if any(self.steps[other].alone for other in [place, *self.running]) else jobs
            if len(self.running) >= limit:
                break
            if ended >= set(self.after[place]):
                return place
        return None

    def start(self, place: int, jobs: int) -> None:
        """Start the command of a step. ``jobs``: how many may run at a time, which share the CPU's cores."""
        step = self.steps[place]
        entry = self.planned[self.names[place]]
        log = step.log or os.path.join(self.out, "logs", f"{step.does.replace(' ', '-').replace('/', '-')}.log")
        for path in (*step.writes, log):
            os.makedirs(os.path.dirname(path), exist_ok=True)
        variables = environment.variables()
        if jobs > 1:
            variables.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // jobs)))
        entry["seconds"] = 0.0
        if step.trains:
            self.made_on = self.made_on or (machine.hardware(variables), machine.version())
            entry["hardware"], entry["commit"] = self.made_on
            entry["seconds"] = self.record["steps"].get(self.names[place], entry)["seconds"]
        else:
            for path in filter(os.path.exists, step.writes):  # of an earlier command, or half-written
                os.remove(path)
        self.record["steps"][self.names[place]] = entry
        write_record(self.out, self.record)
        words = environment.resolved(step.words)
        with ExitStack() as files:
            file = files.enter_context(open(log, "ab"))
            file.write(f"{shlex.join(words)}\n".encode())
            file.flush()
            begin = file.tell()  # (the command moves it)
            source = files.enter_context(open(step.source or os.devnull, "rb"))
            target = files.enter_context(open(unfinished(step.output), "wb")) if step.output else file
            try:
                process = subprocess.Popen(
                    words, env=variables, stdin=source, stdout=target, stderr=file, start_new_session=True
                )
            except FileNotFoundError:
                raise UserError(
                    f"{words[0]}: no such program beside this Python or on PATH; install fb_fairseq with its extras, "
                    "pip install 'fb_fairseq[plot,translation,rl]'"
                ) from None
            self.running[place] = Running(process, time.monotonic(), log, begin)
        if self.stopped:  # while it was starting
            send(process, self.stopped)

    def note(self, place: int, running: Running) -> None:
        """Write down the seconds of a step so far."""
        entry = self.record["steps"][self.names[place]]
        now = time.monotonic()
        entry["seconds"] = round(entry["seconds"] + now - running.noted, 1)
        running.noted = now
        write_record(self.out, self.record)

    def finish(self, place: int) -> str:
        """Write down that a step has ended. Returns an error; empty if there is none."""
        step = self.steps[place]
        running = self.running.pop(place)
        status = running.process.returncode
        error = ""
        if status:
            error = f"failed: {last_line(running.log, running.start) or f'status {status}'}"
        else:
            if step.output:
                os.replace(unfinished(step.output), step.output)
            missing = [path for path in step.writes if not os.path.exists(path)]
            if missing:
                error = f"did not write {missing[0]}"
        if not error:
            numbers = [entry.get("done", 0) for entry in self.record["steps"].values()]
            self.record["steps"][self.names[place]]["done"] = max(numbers) + 1
        self.note(place, running)
        return f"{error}; see {running.log}" if error else ""

    def show(self, place: int) -> None:
        """Show the output of a step that is to be shown."""
        step = self.steps[place]
        if step.shown and step.output:
            with open(step.output, encoding="utf-8", errors="replace") as file:
                print(file.read().strip(), flush=True)

    def stop(self, number: int, frame: object) -> None:
        """Pass a signal on to all commands; the second time, kill them."""
        again = self.stopped
        self.stopped = number
        for running in list(self.running.values()):
            send(running.process, signal.SIGKILL if again else number)


def send(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a command and its children. (Programs take SIGTERM for what SIGHUP means here.)"""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM if number == getattr(signal, "SIGHUP", None) else number)


def unfinished(output: str) -> str:
    """The file of an output that is being written."""
    return f"{output}.unfinished"


def run(recipe: str, steps: Sequence[Step], out: str, *, jobs: int = 1, processes: int = 1, told: bool = False) -> None:
    """Run the steps of a recipe that are not done.

    Args:
        recipe: its name, which the output folder keeps.
        steps: all steps of the call, in order.
        out: the output folder, which is made if there is none.
        jobs: how many may run at a time.
        processes: of each training.
        told: whether each command is printed when it begins.

    Exits with 128 + the number of a signal that has stopped the call.
    """
    for path in (path for step in steps for path in step.reads):
        if not os.path.isfile(path):
            raise UserError(
                f"{path or 'DATA'}: no such file; give one that exists (--help says which data a recipe needs)"
            )
    check_marked_folder("--out", out, os.path.join(out, MARK))
    lock_folder("--out", out)
    engine = Engine(recipe, out, steps)
    engine.check(processes)
    write_record(out, engine.record)  # first of all, as it marks the folder
    with handling(SIGNALS, engine.stop):
        try:
            engine.run(jobs, told)
        finally:
            for running in engine.running.values():  # after an error
                send(running.process, signal.SIGINT)
            for running in engine.running.values():
                running.process.wait()
    if engine.stopped:
        print(f"interrupted; {RESUME}", file=sys.stderr, flush=True)
        sys.exit(128 + engine.stopped)
